package usdt

import (
	"strings"
	"testing"

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
		{"hostile", call{[3]string{"", "a\nb\x1b[2J", "/a.php"}, [3]string{"", "\xff\u202e", "/a.php"}}, `a\nb\x1b[2J`,
			`\xff\u202e`},
		{"cut", call{[3]string{"", strings.Repeat("n", 200), "/a.php"}, [3]string{"", "f", "/a.php"}},
			strings.Repeat("n", 95) + "…", "f"},
		{"nothing", call{[3]string{}, [3]string{"", "f", "/a.php"}}, "", ""},
	} {
		c := &bpf.NamedCall{Engine: bpf.EngineUSDT, CallerLine: 12}
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
		if e.Callee.Value().Function != test.callee || e.Caller.Value().Function != test.caller || e.Site.Line != 12 ||
			e.Site.Offset != -1 {
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

// Other languages format method names in their own way, and report no callers.
func TestEdgeOfOtherLanguages(t *testing.T) {
	for _, test := range []struct {
		path, class, name, want string
	}{
		{"/usr/bin/python3.11", "", "main", "main"},
		{"/usr/bin/ruby3.1", "Cart", "total", "Cart#total"},
		{"/usr/bin/ruby3.1", "Object", "main", "Object#main"},
	} {
		c := &bpf.NamedCall{Engine: bpf.EngineUSDT, Language: uint8(languageOf(test.path)), CallerUnknown: 1}
		copy(c.CalleeClass[:], test.class)
		copy(c.CalleeName[:], test.name)
		e, ok := (&Engine{names: newNames()}).Edge(c)
		if !ok || e.Callee.Value().Function != test.want || e.Caller.Value().Function != "[unknown caller]" {
			t.Errorf("%s: %+v -> %+v, %v", test.path, e.Caller.Value(), e.Callee.Value(), ok)
		}
	}
	if _, ok := (&Engine{names: newNames()}).Edge(&bpf.NamedCall{Engine: bpf.EngineUSDT, Language: 255}); ok {
		t.Error("named a call of a language that nobody knows")
	}
}
