package guest

import (
	"strings"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// name is what profiles show for a place in that mapping that the VM names with these frames.
func (g *VM) name(
	frames []vmruntime.Frame, site vmruntime.Site, mapping unique.Handle[symbol.Mapping],
) (n Name) {
	n.Symbols, n.BCIs = make([]symbol.Symbol, 0, len(frames)), make([]int32, 0, len(frames))
	for i, f := range frames {
		if f.Approximate {
			n.BCIs = append(n.BCIs, -1)
			n.Symbols = append(n.Symbols, symbol.Intern(inlinedIn(f, site, mapping)))
		}
		n.Enters = n.Enters || i == 0 && f.Enters && site.Kind == vmruntime.Interpreted
		f.Approximate = false
		n.BCIs = append(n.BCIs, int32(f.BCI))
		n.Symbols = append(n.Symbols, g.functionOf(f).Intern(vmPlace(f, i < len(frames)-1, site, mapping)))
	}
	return n
}

// A vmFunction is what the VM calls a function.
type vmFunction struct{ name, signature, file string }

// maxFunctions bounds the functions of a VM that are remembered, each some 150 bytes.
const maxFunctions = 1 << 13

// functionOf is the function of a frame.
func (g *VM) functionOf(f vmruntime.Frame) symbol.Function {
	key := vmFunction{f.Function, f.Signature, f.File}
	if known, ok := g.functions[key]; ok {
		return known
	}
	if g.functions == nil || len(g.functions) >= maxFunctions {
		g.functions = map[vmFunction]symbol.Function{}
	}
	function := symbol.FunctionOf(vmFrame(f, false, vmruntime.Site{}, noMapping))
	g.functions[key] = function
	return function
}

// inlinedIn stands for code of a method, or of one that was inlined in it: the VM does not say
// which.
func inlinedIn(f vmruntime.Frame, site vmruntime.Site, mapping unique.Handle[symbol.Mapping]) symbol.Frame {
	out := vmFrame(f, true, site, mapping)
	out.Function = "[inlined in " + f.Function + "]"
	out.SystemName, out.File, out.Line = out.Function, "", 0
	return out
}

// vmFrame is a frame of the VM as profiles show it. It has no address: that differs from one run to
// the next, and would make many frames of a line.
func vmFrame(f vmruntime.Frame, inlined bool, site vmruntime.Site, mapping unique.Handle[symbol.Mapping]) symbol.Frame {
	out := vmPlace(f, inlined, site, mapping)
	out.Function, out.SystemName, out.File = f.Function, f.Function+f.Signature, f.File
	return out
}

// vmPlace is vmFrame without what it says of the function.
func vmPlace(f vmruntime.Frame, inlined bool, site vmruntime.Site, mapping unique.Handle[symbol.Mapping]) symbol.Frame {
	out := symbol.Frame{
		Line: f.Line, Kind: symbol.KindJIT, Inlined: inlined, Approximate: f.Approximate, Mapping: mapping,
	}
	switch site.Kind {
	case vmruntime.Interpreted:
		out.Kind = symbol.KindInterpreted
	case vmruntime.Stub:
		out.Kind = symbol.KindStub
	}
	return out
}

// Mappings of what no file holds. That of a VM's method is the same whatever executes it;
// interpreted frames have one of their own.
const (
	jitPrefix         = "[jit:"
	interpreterPrefix = "[interpreter:"
)

var noMapping = unique.Make(symbol.Mapping{})

// jitFile is the file in mappings of code that a VM of that runtime has compiled: [jit:HotSpot].
func jitFile(r bridge.Runtime) string { return jitPrefix + r.Title() + "]" }

// methodMapping is the mapping of methods of the VM whose code is in that mapping.
func methodMapping(code unique.Handle[symbol.Mapping]) unique.Handle[symbol.Mapping] {
	if code == (unique.Handle[symbol.Mapping]{}) {
		return noMapping
	}
	file := code.Value().File
	if vm, interpreted := strings.CutPrefix(file, interpreterPrefix); interpreted {
		file = jitPrefix + vm
	}
	return unique.Make(symbol.Mapping{File: file})
}

// Marker is a frame that is no code: it shows the reader what is missing at its place.
func Marker(text string) symbol.Symbol {
	return symbol.Intern(symbol.Frame{Function: text, SystemName: text, Kind: symbol.KindMarker, Mapping: noMapping})
}

// MethodOf is the method of a frame: the same one for every line and every tier of it.
func MethodOf(s symbol.Symbol) symbol.Symbol {
	f := s.Value()
	f.Line, f.Address, f.Inlined, f.Approximate = 0, 0, false, false
	if f.Kind == symbol.KindInterpreted {
		f.Kind = symbol.KindJIT
	}
	if f.Kind == symbol.KindJIT {
		f.Mapping = methodMapping(f.Mapping)
	}
	return symbol.Intern(f)
}

// MethodSymbols returns what makes a frame of the VM the symbol of its method, as MethodOf does. It
// may be used when the VM is gone.
func (g *VM) MethodSymbols() func(vmruntime.Frame) symbol.Symbol {
	code := g.mapping
	return func(f vmruntime.Frame) symbol.Symbol {
		return MethodOf(symbol.Intern(vmFrame(f, false, vmruntime.Site{Kind: vmruntime.Compiled}, code)))
	}
}
