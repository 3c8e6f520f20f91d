package fold

import (
	"testing"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// An edge is named by the innermost method at the return address and the method of the entered code, whatever was inlined at either place
// and in any tier.
func TestNameEdge(t *testing.T) {
	code := unique.Make(symbolize.Mapping{File: "[jit:HotSpot]"})
	frame := func(name string, line int, kind symbolize.Kind, inlined bool) symbolize.Symbol {
		return symbolize.Intern(symbolize.Frame{Function: name, Line: line, Kind: kind, Inlined: inlined, Address: 99, Mapping: code})
	}
	method := func(name string) symbolize.Symbol {
		return symbolize.Intern(symbolize.Frame{Function: name, Kind: symbolize.KindJIT, Mapping: code})
	}
	from, to, bare := target.RawFrame{Frame: foldtest.JIT(1, 4)}, target.RawFrame{Frame: foldtest.JIT(2, 8)}, target.RawFrame{Frame: foldtest.Method('1', 0)}
	p := target.NewProcess(proc.Identity{PID: 1})
	for r, n := range map[target.RawFrame]target.Name{
		from: {Symbols: []symbolize.Symbol{frame("inner", 7, symbolize.KindInterpreted, true), frame("outer", 9, symbolize.KindJIT, false)}, BCIs: []int32{21, 3}},
		to:   {Symbols: []symbolize.Symbol{frame("inlined at entry", 1, symbolize.KindJIT, true), frame("callee", 2, symbolize.KindJIT, false)}, BCIs: []int32{0, 0}},
		bare: {Symbols: []symbolize.Symbol{symbolize.Intern(symbolize.Frame{Function: "native", Kind: symbolize.KindNative})}},
	} {
		p.SetName(r, n)
	}
	names := p.Names()
	defer names.Close()
	want := profile.Edge{Caller: method("inner"), Site: profile.Site{Line: 7, Offset: 21}, Callee: method("callee")}
	if got := nameEdge(names, from, to); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := nameEdge(names, bare, to); got.Caller.Value().Function != "native" || got.Site.Offset != -1 {
		t.Errorf("from native code: %+v", got)
	}
	if got := nameEdge(names, from, target.RawFrame{Frame: foldtest.JIT(5, 5)}); got.Callee.Value().Function != "[not named in time]" {
		t.Errorf("to what has no name: %v", got.Callee.Value().Function)
	}
}

func TestCallSetIsBounded(t *testing.T) {
	var s CallSet
	for i := range MaxEdges + 10 {
		if ok := s.AddRaw("listener", target.RawFrame{Frame: foldtest.JIT(1, i)}, target.RawFrame{Frame: foldtest.JIT(2, 0)}); ok != (i < MaxEdges) {
			t.Fatalf("edge %d: %t", i, ok)
		}
	}
	if g := s.Raw["listener"]; g.Overflow() != 10 {
		t.Errorf("overflow %v, want 10", g.Overflow())
	}
}
