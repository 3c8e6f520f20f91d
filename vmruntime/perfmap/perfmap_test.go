package perfmap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// appended is a map of these lines.
func appended(t testing.TB, lines ...string) (m Map, last vmruntime.MapAdded) {
	t.Helper()
	for _, line := range lines {
		var err error
		if last, err = m.appendText([]byte(line+"\n"), false); err != nil {
			t.Fatal(err)
		}
	}
	return m, last
}

func nameAt(m *Map, addr uint64) string {
	e, ok := m.Find(addr)
	if !ok {
		return ""
	}
	return e.Name
}

func TestMap(t *testing.T) {
	m, _ := appended(t, "2000 100 b", "0x1000 0x10 a", "7f3814005b80 130 JS:^leaf (x) file:///app/x.js:1:15")
	for addr, want := range map[uint64]string{
		0xfff: "", 0x1000: "a", 0x100f: "a", 0x1010: "", 0x2000: "b", 0x20ff: "b", 0x2100: "",
		0x7f3814005caf: "JS:leaf (x) file:///app/x.js:1:15", 0x7f3814005cb0: "", 1<<64 - 1: "",
	} {
		if got := nameAt(&m, addr); got != want {
			t.Errorf("%#x is %q, want %q", addr, got, want)
		}
	}
	if low, high := m.Bounds(); low != 0x1000 || high != 0x7f3814005cb0 {
		t.Errorf("bounds %#x, %#x", low, high)
	}
	if e, ok := m.Find(0x2050); !ok || e != (vmruntime.MappedCode{Begin: 0x2000, End: 0x2100, Name: "b"}) {
		t.Errorf("found %+v, %t", e, ok)
	}
}

// Where lines overlap the later one is right, and what the earlier one spoke of is gone as a whole:
// also if the later one is gone by now, and however the lines came.
func TestMapOverlap(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  string // names at addresses 0, 10, … 90, or . for none
	}{
		{"next to each other", []string{"00 10 a", "10 10 b"}, "ab........"},
		{"the same place", []string{"00 20 a", "00 20 b"}, "bb........"},
		{"inside", []string{"00 50 a", "20 10 b"}, "..b......."},
		{"around", []string{"20 10 a", "40 10 b", "00 60 c"}, "cccccc...."},
		{"at the end", []string{"00 30 a", "20 30 b"}, "..bbb....."},
		{"at the begin", []string{"20 30 b", "00 30 a"}, "aaa......."},
		{"between two", []string{"00 30 a", "40 30 b", "20 30 c"}, "..ccc....."},
		{"gone with what is gone", []string{"00 30 a", "20 30 b", "40 30 c"}, "....ccc..."},
		{"beside what is gone", []string{"60 10 z", "00 30 a", "20 30 b", "40 10 c"}, "....c.z..."},
		{"one reaches into three", []string{"00 20 a", "30 10 b", "50 20 c", "80 10 d", "10 50 e"}, ".eeeee..d."},
	} {
		for way, m := range map[string]func() Map{
			"one by one": func() Map { m, _ := appended(t, tt.lines...); return m },
			"at once":    func() Map { m, _ := appended(t, strings.Join(tt.lines, "\n")); return m },
			"two, then the rest": func() Map {
				m, _ := appended(t, strings.Join(tt.lines[:2], "\n"), strings.Join(tt.lines[2:], "\n"))
				return m
			},
		} {
			m := m()
			got := ""
			for addr := uint64(0); addr < 0xa0; addr += 0x10 {
				name := nameAt(&m, addr)
				if name == "" {
					name = "."
				}
				got += name
			}
			if got != tt.want {
				t.Errorf("%s, %s: %s, want %s", tt.name, way, got, tt.want)
			}
		}
	}
}

// Who was told a name learns that it is not right any more.
func TestMapReplaced(t *testing.T) {
	m, a := appended(t, "1000 10 a", "2000 10 b", "1000 10 c")
	if a.Replaced {
		t.Error("a name was replaced that nobody had asked for")
	}
	m.Find(0x1000)
	for _, step := range []struct {
		line string
		want bool
	}{{"2008 10 d", false}, {"3000 10 e", false}, {"1008 1 f", true}, {"1000 10 g", false}} {
		if a, err := m.appendText([]byte(step.line+"\n"), false); err != nil || a.Replaced != step.want {
			t.Errorf("%s: %+v, %v", step.line, a, err)
		}
	}
}

// Lines come in pieces that end anywhere.
func TestMapPieces(t *testing.T) {
	const text = "1000 10 a\n2000 10 b\n3000 10 c"
	for n := range len(text) {
		var m Map
		first, err := m.appendText([]byte(text[:n]), false)
		if err != nil {
			t.Fatal(err)
		}
		second, err := m.appendText([]byte(text[first.Bytes:]), false)
		if err != nil {
			t.Fatal(err)
		}
		if first.Bytes+second.Bytes != 20 || first.Malformed+second.Malformed != 0 {
			t.Errorf("cut at %d: %+v, %+v", n, first, second)
		}
		if got := nameAt(&m, 0x1000) + nameAt(&m, 0x2000) + nameAt(&m, 0x3000); got != "ab" {
			t.Errorf("cut at %d: %q", n, got)
		}
	}
}

// A line that is longer than a piece is left out, and nothing else.
func TestMapLongLine(t *testing.T) {
	var m Map
	var all vmruntime.MapAdded
	for _, piece := range []string{"1000 10 a\n2000 10 ", "2000 10 bbbbbb", "bbbbbbbbbbbbbb",
		"3000 10 b\n4000 10 d\n"} {
		a, err := m.appendText([]byte(piece), true)
		if err != nil {
			t.Fatal(err)
		}
		all.Bytes, all.Malformed = all.Bytes+a.Bytes, all.Malformed+a.Malformed
	}
	if all.Bytes != 10+14+14+20 || all.Malformed == 0 || nameAt(&m, 0x1000)+nameAt(&m, 0x2000)+nameAt(&m, 0x3000)+
		nameAt(&m, 0x4000) != "ad" {
		t.Errorf("%+v, %v", all, m.code)
	}
}

func TestMapMalformed(t *testing.T) {
	bad := []string{"", "1000", "1000 10", "1000 10 ", "1000 0 nothing", "x 10 a", "1000 y a", "-1 10 a", "1000 -1 a",
		"ffffffffffffffff 10 beyond the end", "10000000000000000 10 a", " ", "\x00"}
	m, err := appendText(t, strings.Join(bad, "\n")+"\n5000 1 good\n")
	if err.Malformed != len(bad) || len(m.code) != 1 || nameAt(&m, 0x5000) != "good" {
		t.Errorf("%+v, %v", err, m.code)
	}
}

func appendText(t testing.TB, text string) (m Map, a vmruntime.MapAdded) {
	t.Helper()
	a, err := m.appendText([]byte(text), false)
	if err != nil {
		t.Fatal(err)
	}
	return m, a
}

func TestMapFull(t *testing.T) {
	var lines strings.Builder
	for i := range maxLines {
		fmt.Fprintf(&lines, "%x 1 f\n", i)
	}
	m, _ := appendText(t, lines.String())
	if a, err := m.appendText([]byte("nonsense\n"), false); err != nil || a.Malformed != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := m.appendText([]byte("1 1 f\n"), false); !errors.Is(err, vmruntime.ErrMapFull) {
		t.Errorf("a line too many: %v", err)
	}
	var long Map
	piece := []byte("1000 10 " + strings.Repeat("n", 1<<20) + "\n")
	for range MaxBytes / len(piece) {
		if _, err := long.appendText(piece, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := long.appendText(piece, true); !errors.Is(err, vmruntime.ErrMapFull) {
		t.Errorf("a byte too many: %v", err)
	}
	if long.Bytes() > 1<<20 {
		t.Errorf("%d bytes for names that are cut", long.Bytes())
	}
}

// Names are those of people's functions, whoever compiled them, and fit for every output.
func TestNames(t *testing.T) {
	for given, want := range map[string]string{
		"JS:*f /a.js:1:2": "JS:f /a.js:1:2", "JS:~f": "JS:f", "JS:^f": "JS:f", "JS:+f": "JS:f",
		"LazyCompile:*f": "LazyCompile:f",
		"JS:f":           "JS:f", "JS:*": "JS:*", "Builtin:*x": "Builtin:*x", "*x": "*x", ":*x": ":*x",
		"void [app] Program::Main()[Tier0]": "void [app] Program::Main()[Tier0]", "a\x1b[2Jb": `a\x1b[2Jb`,
	} {
		if got := symbol.CleanName(plainName(given)); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
	long, _ := appended(t, "1000 10 "+strings.Repeat("n", 2*MaxName))
	if got := symbol.CleanName(nameAt(&long, 0x1000)); len(got) > symbol.MaxName || !strings.HasSuffix(got, "…") {
		t.Errorf("a long name is %q", got)
	}
}

// Any text in any two pieces gives what going through it line by line gives.
func FuzzMap(f *testing.F) {
	f.Add([]byte("2323 13 JS:~round /a.js:5:15\n2330 13 JS:*round\n2338 40 b\n1000 2000 c\n"), uint16(20))
	f.Add([]byte("10 10 a\n30 10 b\n18 20 c\n\n2c 1 d\n0 ffffffffffffffff e\n5 5 f\n"), uint16(3))
	f.Fuzz(func(t *testing.T, text []byte, cut uint16) {
		var m Map
		first, err := m.appendText(text[:min(int(cut), len(text))], false)
		if err != nil {
			t.Fatal(err)
		}
		second, err := m.appendText(text[first.Bytes:], false)
		if err != nil {
			t.Fatal(err)
		}
		var want []vmruntime.MappedCode
		malformed, line := 0, 0
		for _, l := range strings.SplitAfter(string(text[:first.Bytes+second.Bytes]), "\n") {
			begin, size, name, ok := parseLine([]byte(l))
			switch {
			case l == "":
			case !ok:
				malformed++
			default:
				want = slices.DeleteFunc(want, func(e vmruntime.MappedCode) bool {
					return e.Begin < begin+size &&
						begin < e.End
				})
				want = append(want, vmruntime.MappedCode{Begin: begin, End: begin + size, Line: line,
					Name: plainName(string(name))})
				line++
			}
		}
		if first.Malformed+second.Malformed != malformed {
			t.Errorf("%d and %d malformed lines, want %d", first.Malformed, second.Malformed, malformed)
		}
		if len(m.code) != len(want) {
			t.Fatalf("%d entries, want %d", len(m.code), len(want))
		}
		for _, e := range want {
			name := symbol.CleanName(e.Name)
			if len(e.Name) > MaxName || len(name) > symbol.MaxName || !utf8.ValidString(name) ||
				strings.ContainsFunc(name, unicode.IsControl) {
				t.Errorf("%q has %d bytes, and is shown as %q", e.Name, len(e.Name), name)
			}
			for _, addr := range []uint64{e.Begin, e.End - 1} {
				if got, ok := m.Find(addr); !ok || got != e {
					t.Errorf("%#x is %+v, want %+v", addr, got, e)
				}
			}
		}
		if n := m.Bytes(); n > int64(4096+64*len(text)) {
			t.Errorf("%d bytes from a text of %d", n, len(text))
		}
	})
}

func BenchmarkMap(b *testing.B) {
	var lines strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&lines, "%x %x JS:*function%d file:///application/module.js:%d:15\n", i*7919%1_000_003*64, 32+i%64,
			i, i)
	}
	text := []byte(lines.String())
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var m Map
		if _, err := m.appendText(text, false); err != nil {
			b.Fatal(err)
		}
	}
}
