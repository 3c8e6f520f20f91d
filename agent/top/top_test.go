package top

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

var update = flag.Bool("update", false, "write what the views show to testdata")

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

const second = time.Second

func frame(function string, kind symbolize.Kind) symbolize.Symbol {
	return symbolize.Intern(symbolize.Frame{Function: function, Kind: kind})
}

func tree(stacks map[string]uint64) *cct.Tree[symbolize.Symbol] {
	t := new(cct.Tree[symbolize.Symbol])
	for text, weight := range stacks {
		var stack []symbolize.Symbol
		for _, f := range strings.Fields(text) {
			kind := symbolize.KindJIT
			if name, kernel := strings.CutPrefix(f, "k:"); kernel {
				f, kind = name, symbolize.KindKernel
			}
			stack = append(stack, frame(f, kind))
		}
		t.Add(stack, weight)
	}
	return t
}

// shop is a window of two services, of which one searches hot times in 100 samples.
func shop(at time.Duration, hot uint64) *profile.Profile {
	return &profile.Profile{
		Start: noon.Add(at), Duration: 2 * second, Period: 10 * time.Millisecond,
		Processes: []*profile.Process{
			{PID: 7, Service: "shop.service", Runtime: "hotspot", Threads: []*profile.Thread{
				{Name: "http-nio-8080-exec-1", Tree: tree(map[string]uint64{
					"com.acme.shop.Search.match com.acme.shop.Search.find java.lang.Thread.run": hot,
					"com.acme.shop.Cart.add java.lang.Thread.run":                               80 - hot,
				})},
				{Name: "http-nio-8080-exec-22", Tree: tree(map[string]uint64{"k:futex_wait com.acme.shop.Cart.add java.lang.Thread.run": 10})},
				{Name: "GC Thread#0", Tree: tree(map[string]uint64{"G1ParScanThreadState::trim": 10})},
			}},
			{PID: 8, Comm: "evil\x1b[31m", Threads: []*profile.Thread{{Name: "a", Tree: tree(map[string]uint64{"日本語日本語.計算 <script>": 1})}}},
		},
	}
}

func allocations(at time.Duration) *profile.Profile {
	t := tree(map[string]uint64{"com.acme.shop.Search.match com.acme.shop.Search.find": 40})
	return &profile.Profile{Start: noon.Add(at), Duration: 2 * second, Processes: []*profile.Process{{
		PID: 7, Service: "shop.service", Events: []*profile.Events{{Kind: profile.Allocations, Tree: t, Rows: []profile.EventRow{
			{Context: 2, Events: 30, EventLabels: profile.EventLabels{Class: "byte[]"}, Values: [3]float64{3000, 30e6}},
			{Context: 2, Events: 10, EventLabels: profile.EventLabels{Class: "java.lang.String"}, Values: [3]float64{1000, 10e6}},
			{Context: 2, Events: 99, EventLabels: profile.EventLabels{Class: "byte[]", What: profile.ExactAllocations}, Values: [3]float64{1, 1}},
		}}},
	}}}
}

func TestViews(t *testing.T) {
	m := NewModel(4)
	for i := range 180 { // six minutes, in the last one of which Search has become slow
		hot := uint64(20)
		if i >= 150 {
			hot = 50
		}
		m.Add(shop(time.Duration(i)*2*second, hot))
		m.AddEvents(allocations(time.Duration(i) * 2 * second))
	}
	press := func(letters string, keys ...Key) *View {
		v := new(View)
		v.Lines(m, 80, 24)
		for _, r := range letters {
			v.Type(r)
		}
		for _, k := range keys {
			v.Press(k)
		}
		return v
	}
	for name, v := range map[string]*View{
		"methods": press(""), "threads": press("t"), "callers": press("", Enter), "allocations": press("a"), "locks": press("l"), "help": press("?"),
		"diff": press("d"), "search": press("/CART", Enter), "typing": press("/CA", Backspace), "second": press("", Right, Down),
	} {
		for _, screen := range []struct{ width, height int }{{80, 24}, {200, 50}, {40, 10}, {5, 2}} {
			lines := v.Lines(m, screen.width, screen.height)
			if len(lines) != screen.height {
				t.Errorf("%s: %d lines in %d", name, len(lines), screen.height)
			}
			var text strings.Builder
			for _, line := range lines {
				if columns(line.Text) > screen.width || strings.ContainsAny(line.Text, "\x1b\n\t") {
					t.Errorf("%s: line %q on a screen of %d columns", name, line.Text, screen.width)
				}
				mark := " "
				if line.Style == Selected {
					mark = ">"
				}
				text.WriteString(strings.TrimRight(mark+line.Text, " ") + "\n")
			}
			if screen.width != 80 && name != "methods" {
				continue
			}
			file := filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt", name, screen.width, screen.height))
			if *update {
				if err := os.WriteFile(file, []byte(text.String()), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text.String() != string(want) {
				t.Errorf("%s is not %s:\n%s", name, file, text.String())
			}
		}
	}
	if v := new(View); len(v.Lines(NewModel(1), 80, 24)) != 24 {
		t.Error("nothing before the first window")
	}
}

// What is kept is bounded, in time and in size, and sums stay true.
func TestModelBounds(t *testing.T) {
	m := NewModel(1)
	for i := range 1000 {
		m.Add(shop(time.Duration(i)*2*second, 20))
	}
	if n, most := len(m.windows), int(MaxAge/(2*second))+1; n > most {
		t.Errorf("%d windows are kept, want %d", n, most)
	}
	many := map[string]uint64{}
	for i := range 3 * maxRows {
		many[fmt.Sprintf("method%d", i)] = uint64(i%7 + 1)
	}
	p := shop(2001*second, 0)
	p.Processes[0].Threads = []*profile.Thread{{Name: "t", Tree: tree(many)}}
	m.Add(p)
	s := m.windows[len(m.windows)-1].services["shop.service"]
	sum := 0.0
	for _, r := range s.methods {
		sum += r.self
	}
	if len(s.methods) > maxRows || sum != s.samples() {
		t.Errorf("%d methods with %v of %v samples", len(s.methods), sum, s.samples())
	}
}

// The interval contains the truth as often as it says.
func TestWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const runs = 2000
	for _, share := range []float64{0.02, 0.3, 0.5} {
		for _, n := range []int{100, 1000} {
			inside := 0
			for range runs {
				hits := 0
				for range n {
					if r.Float64() < share {
						hits++
					}
				}
				estimate := float64(hits) / float64(n)
				if math.Abs(estimate-share) <= within(estimate, float64(n))/100 {
					inside++
				}
			}
			if inside < runs*94/100 {
				t.Errorf("share %v of %d: %d of %d intervals contain it", share, n, inside, runs)
			}
		}
	}
	if !math.IsNaN(within(0.5, 0)) {
		t.Error("an interval without observations")
	}
}

func TestThreadGroup(t *testing.T) {
	for name, want := range map[string]string{
		"http-nio-8080-exec-12": "http-nio-*-exec-*", "main": "main", "pool-1-thread-3": "pool-*-thread-*", "": "", "42": "*",
	} {
		if got := ThreadGroup(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
