package fold

import (
	"testing"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// An edge is named by the innermost method at the return address and the method of the entered
// code, whatever was inlined at either place and in any tier.
func TestNameEdge(t *testing.T) {
	code := unique.Make(symbol.Mapping{File: "[jit:HotSpot]"})
	frame := func(name string, line int, kind symbol.Kind, inlined bool) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, Line: line, Kind: kind, Inlined: inlined, Address: 99,
			Mapping: code})
	}
	method := func(name string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, Kind: symbol.KindJIT, Mapping: code})
	}
	from, to, bare := guest.RawFrame{Frame: foldtest.JIT(1, 4)}, guest.RawFrame{Frame: foldtest.JIT(2, 8)},
		guest.RawFrame{Frame: foldtest.Method('1', 0)}
	p := guest.NewProcess(proc.Identity{PID: 1})
	for r, n := range map[guest.RawFrame]guest.Name{
		from: {Symbols: []symbol.Symbol{frame("inner", 7, symbol.KindInterpreted, true),
			frame("outer", 9, symbol.KindJIT, false)}, BCIs: []int32{21, 3}},
		to: {Symbols: []symbol.Symbol{frame("inlined at entry", 1, symbol.KindJIT, true),
			frame("callee", 2, symbol.KindJIT, false)}, BCIs: []int32{0, 0}},
		bare: {Symbols: []symbol.Symbol{symbol.Intern(symbol.Frame{Function: "native", Kind: symbol.KindNative})}},
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
	if got := nameEdge(names, from, guest.RawFrame{Frame: foldtest.JIT(5,
		5)}); got.Callee.Value().Function != "[not named in time]" {
		t.Errorf("to what has no name: %v", got.Callee.Value().Function)
	}
}

func TestCallSetIsBounded(t *testing.T) {
	var s CallSet
	for i := range MaxEdges + 10 {
		if ok := s.AddRaw("listener", guest.RawFrame{Frame: foldtest.JIT(1, i)},
			guest.RawFrame{Frame: foldtest.JIT(2, 0)}); ok != (i < MaxEdges) {
			t.Fatalf("edge %d: %t", i, ok)
		}
	}
	if g := s.Raw["listener"]; g.Overflow() != 10 {
		t.Errorf("overflow %v, want 10", g.Overflow())
	}
}
