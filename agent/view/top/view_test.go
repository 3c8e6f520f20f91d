package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

var update = flag.Bool("update", false, "rewrite testdata")

var sizes = [][2]int{{80, 24}, {200, 50}, {40, 10}}

// screenText draws a screen, and fails if it is not of that size.
func screenText(t *testing.T, s *Screen, width, height int) string {
	t.Helper()
	lines := s.Lines(width, height)
	if len(lines) != height {
		t.Errorf("%d lines, want %d", len(lines), height)
	}
	var b strings.Builder
	for i, line := range lines {
		if got := uniseg.StringWidth(line.String()); got > width {
			t.Errorf("line %d has %d columns of %d: %q", i, got, width, line)
		}
		b.WriteString(line.String() + "\n")
	}
	return b.String()
}

func press(s *Screen, keys string) (last Command) {
	for _, r := range keys {
		k := Key{Rune: r}
		switch r {
		case '\r':
			k = Key{Other: Enter}
		case '\t':
			k = Key{Other: Tab}
		case '\x1b':
			k = Key{Other: Escape}
		case '\b':
			k = Key{Other: Backspace}
		case '↓':
			k = Key{Other: Down}
		}
		last = s.Press(k)
	}
	return last
}

// recorded is a screen over three minutes with all that can be recorded.
func recorded() *Screen {
	m := filled(90)
	p := process(4711, "shop.service")
	events(p, profile.Allocations, "byte[]", 160e3, stack{"http-nio-8080-exec-1",
		"org.acme.shop.Basket.render;java.util.Arrays.copyOf", 900})
	events(p, profile.Allocations, "org.acme.shop.catalogue.Article", 64e3,
		stack{"http-nio-8080-exec-1", "org.acme.shop.web.SearchController.handle;org.acme.shop.catalogue.Index.read",
			100})
	events(p, profile.Locks, "org.acme.shop.catalogue.Index", 2e6,
		stack{"http-nio-8080-exec-1", "org.acme.shop.web.SearchController.handle;org.acme.shop.catalogue.Index.read",
			40})
	m.ObserveEvents(profile.Allocations, at(89, p))
	m.ObserveEvents(profile.Locks, at(89, p))
	const futex = ";java.util.concurrent.FutureTask.get;jdk.internal.misc.Unsafe.park;n:pthread_cond_wait;k:futex_wait"
	waits(p, cause.Park, 20*time.Millisecond, stack{"http-nio-8080-exec-1",
		"java.lang.Thread.run;org.acme.shop.web.SearchController.handle" + futex, 30})
	waits(p, cause.Runnable, 5*time.Millisecond, stack{"http-nio-8080-exec-2",
		"java.lang.Thread.run;org.acme.shop.web.SearchController.handle;org.acme.shop.catalogue.Index.find;k:irqentry_exit", 80})
	waits(p, cause.Idle, time.Second, stack{"http-nio-8080-exec-3",
		"[idle];java.lang.Thread.run;java.util.concurrent.ThreadPoolExecutor.getTask" + futex, 2})
	m.ObserveEvents(profile.OffCPU, at(89, p))
	s := NewScreen(m)
	s.Own(0.0123)
	return s
}

func TestGolden(t *testing.T) {
	for name, keys := range map[string]string{
		"methods": "", "threads": "t", "allocations": "a", "locks": "l", "off-cpu": "o", "changes": "d",
		"callers": "↓c", "help": "?",
		"service": "\t", "search": "/regex\r", "prompt": "w",
	} {
		for _, size := range sizes {
			s := recorded()
			screenText(t, s, size[0], size[1]) // keys are pressed by somebody who sees something
			press(s, keys)
			got := screenText(t, s, size[0], size[1])
			path := filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt", name, size[0], size[1]))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || got != string(want) {
				t.Errorf("%s: %v, got\n%s", path, err, got)
			}
		}
	}
}

// Any size is drawn, also those in which nothing fits, in any state.
func TestSizes(t *testing.T) {
	for _, keys := range []string{"", "a", "o", "d", "c", "?", "/x", "w", "/none\r"} {
		for _, s := range []*Screen{recorded(), NewScreen(NewModel(1))} {
			press(s, keys)
			for _, width := range []int{1, 2, 7, 39, 64, 80, 96, 120, 500} {
				for _, height := range []int{1, 2, 3, 5, 12, 100} {
					screenText(t, s, width, height)
				}
			}
			if lines := s.Lines(0, 0); lines != nil {
				t.Errorf("lines on no screen: %v", lines)
			}
		}
	}
}

// Names from targets cannot move the cursor, nor take more columns than they are given.
func TestHostileNames(t *testing.T) {
	evil := "\x1b[2J\x1b]0;owned\x07\r\n\u202e\u200b\xff" + strings.Repeat("\u6f22\u0301", 300)
	m := NewModel(2)
	p := process(1, evil, stack{evil, evil + ";" + strings.ReplaceAll(evil, "2", "3"), 50})
	p.Comm = evil
	events(p, profile.Allocations, evil, 10, stack{evil, evil, 5})
	m.Observe(at(0, p))
	m.ObserveEvents(profile.Allocations, at(0, p))
	for _, keys := range []string{"", "t", "a", "d", "c", "\t\t", "w"} {
		s := NewScreen(m)
		press(s, keys)
		for _, size := range append(sizes, [2]int{2000, 24}) {
			got := screenText(t, s, size[0], size[1])
			for _, r := range strings.ReplaceAll(got, "\n", "") {
				if r < ' ' || r == 0x7f || r == '\u202e' || r == '\u200b' || r == '\ufffd' {
					t.Fatalf("after %q the screen has %q:\n%q", keys, r, got)
				}
			}
		}
	}
	if name := NewScreen(m).fileName(); strings.ContainsAny(name, "/\x1b \n") {
		t.Errorf("file name %q", name)
	}
}

func TestKeys(t *testing.T) {
	s := recorded()
	screenText(t, s, 80, 24)
	if !press(s, "q").Quit || !s.Press(Key{Other: Interrupt}).Quit || !s.Press(Key{Other: Suspend}).Suspend {
		t.Error("q, Ctrl-C and Ctrl-Z do not do what they should")
	}
	// In a prompt, letters are text.
	if press(s, "/q").Quit || s.prompt != '/' || s.input != "q" {
		t.Error("q in a search quits")
	}
	if !s.Press(Key{Other: Interrupt}).Quit {
		t.Error("Ctrl-C in a search does not quit")
	}
	press(s, "\x1b")
	// A search takes effect while it is typed, and Esc ends it.
	if press(s, "/regex"); len(s.table()) != 1 {
		t.Errorf("%d rows while a search is typed", len(s.table()))
	}
	if press(s, "\b\b\b\b\bINDEX"); len(s.table()) != 0 {
		t.Error("capitals do not count")
	}
	if press(s, "\x1b"); len(s.table()) != 7 || s.prompt != 0 {
		t.Errorf("%d rows after a search, want all 7", len(s.table()))
	}
	// Events are wanted only while their view, or callers of it, are open.
	for _, c := range []struct {
		keys string
		want string
	}{{"a", "alloc"}, {"c", "alloc"}, {"\x1b", "alloc"}, {"?", "alloc"}, {"?", "alloc"}, {"l", "lock"}, {"m", ""},
		{"l", "lock"}, {"l", ""}} {
		press(s, c.keys)
		got := ""
		if kind, any := s.Wants(); any {
			got = kind.String()
		}
		if got != c.want {
			t.Errorf("after %q %q is wanted, want %q", c.keys, got, c.want)
		}
	}
	// What is written is what is shown.
	press(s, "\tw")
	if s.service != "shop.service" || s.input != "top-shop-cpu-140300.html" {
		t.Errorf("service %q, file %q", s.service, s.input)
	}
	w := press(s, "\r").Write
	if w == nil || w.Events || len(w.Profiles) != 5 || len(w.Profiles[0].Processes) != 1 ||
		w.Profiles[0].Processes[0].PID != 4711 {
		t.Errorf("%+v", w)
	}
	press(s, "aw\b\b\b\b\b\bx\r")
	if w := press(s, "w\r").Write; w == nil || !w.Events || w.Kind != profile.Allocations || len(w.Profiles) != 1 {
		t.Errorf("%+v", w)
	}
	if w := press(NewScreen(NewModel(1)), "w\r").Write; w != nil {
		t.Errorf("%+v of an empty model", w)
	}
}

// The cursor stays on its method while others overtake it.
func TestCursor(t *testing.T) {
	m := NewModel(2)
	m.Observe(at(0, process(1, "a", stack{"t", "x", 50}, stack{"t", "y", 40}, stack{"t", "z", 30})))
	s := NewScreen(m)
	s.span = 0
	screenText(t, s, 80, 24)
	press(s, "↓")
	screenText(t, s, 80, 24)
	m.Observe(at(1, process(1, "a", stack{"t", "x", 50}, stack{"t", "y", 10}, stack{"t", "z", 30})))
	screenText(t, s, 80, 24)
	if s.cursor != 2 {
		t.Errorf("the cursor is on row %d, not on y's", s.cursor)
	}
	press(s, "c")
	if s.of.name != "y" {
		t.Errorf("callers of %q, want y's", s.of.name)
	}
}

// A day of top costs the same as an hour: drawing takes time in proportion to what is kept.
func BenchmarkRefresh(b *testing.B) {
	var stacks []stack
	for i := range 400 { // two busy CPUs have as many samples in two seconds
		stacks = append(stacks, stack{"t", fmt.Sprintf("java.lang.Thread.run;caller%d;method%d", i%50, i%200), 1})
	}
	m := NewModel(2)
	p := process(1, "busy", stacks...)
	for n := range 150 {
		m.Observe(at(n, p))
	}
	s := NewScreen(m)
	for n := 0; b.Loop(); n++ {
		m.Observe(at(150+n, p))
		s.Lines(80, 24)
	}
}
