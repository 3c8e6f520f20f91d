package semaphore

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestEdge(t *testing.T) {
	put := func(to []uint8, s string) { to[copy(to[:len(to)-1], s)] = 0 }
	type call struct{ callee, caller [3]string } // class, name, file
	for _, test := range []struct {
		name           string
		call           call
		callee, caller string // "" callee: no edge
	}{
		{"functions", call{[3]string{"", "leaf", "/a.php"}, [3]string{"", "twice", "/a.php"}}, "leaf", "twice"},
		{"methods", call{[3]string{"A\\B", "f", "/a.php"}, [3]string{"C", "g", "/c.php"}}, "A\\B::f", "C::g"},
		{"an included file", call{[3]string{"", "main", "/b.php"}, [3]string{"", "", "/a.php"}}, "main", "main"},
		{"a method called main", call{[3]string{"A", "main", "/b.php"}, [3]string{"", "f", "/a.php"}}, "A::main", "f"},
		{"no caller", call{[3]string{"", "main", "/b.php"}, [3]string{}}, "main", "[no PHP caller]"},
		{"hostile", call{[3]string{"", "a\nb\x1b[2J", "/a.php"}, [3]string{"", "\xff\u202e", "/a.php"}}, `a\nb\x1b[2J`, `\xff\u202e`},
		{"cut", call{[3]string{"", strings.Repeat("n", 200), "/a.php"}, [3]string{"", "f", "/a.php"}}, strings.Repeat("n", 95) + "…", "f"},
		{"nothing", call{[3]string{}, [3]string{"", "f", "/a.php"}}, "", ""},
	} {
		c := &bpf.NamedCall{Engine: bpf.EngineSemaphore, CallerLine: 12}
		for i, to := range [][]uint8{c.CalleeClass[:], c.CalleeName[:], c.CalleeFile[:]} {
			put(to, test.call.callee[i])
		}
		for i, to := range [][]uint8{c.CallerClass[:], c.CallerName[:], c.CallerFile[:]} {
			put(to, test.call.caller[i])
		}
		e, ok := (&Engine{names: newNames()}).Edge(c)
		if ok != (test.callee != "") {
			t.Errorf("%s: ok is %v", test.name, ok)
		}
		if !ok {
			continue
		}
		if e.Callee.Value().Function != test.callee || e.Caller.Value().Function != test.caller || e.Site.Line != 12 || e.Site.Offset != -1 {
			t.Errorf("%s: %+v -> %+v at %+v", test.name, e.Caller.Value(), e.Callee.Value(), e.Site)
		}
		if e.Callee.Value().File != test.call.callee[2] {
			t.Errorf("%s: file %q", test.name, e.Callee.Value().File)
		}
	}
	if _, ok := (&Engine{names: newNames()}).Edge(&bpf.NamedCall{Engine: bpf.EnginePage}); ok {
		t.Error("took another engine's call")
	}
}

func TestOrder(t *testing.T) {
	want := order{verbAdd, 4711, 99, 0x5588_0000_38ba}
	got, text, err := decodeOrder(want.encode("why"))
	if got != want || text != "why" || err != nil {
		t.Errorf("%+v, %q, %v", got, text, err)
	}
	if b := want.encode(strings.Repeat("x", 1<<16)); len(b) != maxOrder {
		t.Errorf("a long text makes a message of %d bytes", len(b))
	}
}

func FuzzOrder(f *testing.F) {
	f.Add(order{Verb: verbHold, PID: 1}.encode("text"))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, text, err := decodeOrder(b)
		if err != nil && (o != order{} || text != "") {
			t.Errorf("%+v, %q with error %v", o, text, err)
		}
		if err == nil && orderSize+len(text) != len(b) {
			t.Errorf("%d bytes of text in a message of %d", len(text), len(b))
		}
	})
}

func TestParseTracer(t *testing.T) {
	for _, test := range []struct {
		in   string
		want int
		bad  bool
	}{
		{"Name:\tphp\nTracerPid:\t0\nUid:\t0\n", 0, false},
		{"Name:\tTracerPid:\\n\nTracerPid:\t4711\n", 4711, false},
		{"Name:\tphp\n", 0, true},
		{"TracerPid:\t-1\n", 0, true},
		{"TracerPid:\t99999999\n", 0, true},
	} {
		got, err := parseTracer([]byte(test.in))
		if got != test.want || errors.Is(err, proc.ErrMalformed) != test.bad {
			t.Errorf("%q: %d, %v", test.in, got, err)
		}
	}
}

func FuzzParseTracer(f *testing.F) {
	f.Add([]byte("Name:\tphp\nTracerPid:\t12\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if pid, err := parseTracer(b); pid < 0 || err != nil && pid != 0 {
			t.Errorf("%d, %v", pid, err)
		}
	})
}
