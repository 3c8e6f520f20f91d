package target

import (
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// vmName is what profiles show for a place of which the VM tells these frames.
func vmName(frames []vmruntime.Frame, site vmruntime.Site, g *VM) (n Name) {
	for i, f := range frames {
		if site.Exact && f.Approximate {
			n.BCIs = append(n.BCIs, -1)
			n.Symbols = append(n.Symbols, symbolize.Intern(inlinedIn(f, site, g)))
		}
		f.Approximate = false
		n.BCIs = append(n.BCIs, int32(f.BCI))
		n.Symbols = append(n.Symbols, symbolize.Intern(vmFrame(f, i < len(frames)-1, site, g)))
	}
	return n
}

// inlinedIn stands for code of a method, or of one that was inlined in it: the VM does not tell which.
func inlinedIn(f vmruntime.Frame, site vmruntime.Site, g *VM) symbolize.Frame {
	out := vmFrame(f, true, site, g)
	out.Function = "[inlined in " + f.Function + "]"
	out.SystemName, out.File, out.Line = out.Function, "", 0
	return out
}

// vmFrame is a frame of the VM as profiles show it.
func vmFrame(f vmruntime.Frame, inlined bool, site vmruntime.Site, g *VM) symbolize.Frame {
	out := symbolize.Frame{
		Function: f.Function, SystemName: f.Function + f.Signature, File: f.File, Line: f.Line,
		Kind: symbolize.KindJIT, Inlined: inlined, Approximate: f.Approximate, Mapping: g.mapping, Address: site.PC,
	}
	switch site.Kind {
	case vmruntime.Interpreted:
		out.Kind, out.Mapping, out.Address = symbolize.KindInterpreted, interpreterMapping, 0
	case vmruntime.Stub:
		out.Kind = symbolize.KindStub
	}
	return out
}

// Mappings of what no file holds.
var (
	noMapping          = unique.Make(symbolize.Mapping{})
	interpreterMapping = unique.Make(symbolize.Mapping{File: "[interpreter:HotSpot]"})
)

// MethodMapping is the mapping of a HotSpot method, whatever executes it.
var MethodMapping = unique.Make(symbolize.Mapping{File: "[jit:HotSpot]"})

// Marker is a frame that is no code: it shows the reader what is missing at its place.
func Marker(text string) symbolize.Symbol {
	return symbolize.Intern(symbolize.Frame{Function: text, SystemName: text, Kind: symbolize.KindMarker, Mapping: noMapping})
}

// MethodOf is the method of a frame: the same one for every line and every tier of it.
func MethodOf(s symbolize.Symbol) symbolize.Symbol {
	f := s.Value()
	f.Line, f.Address, f.Inlined, f.Approximate = 0, 0, false, false
	if f.Kind == symbolize.KindInterpreted {
		f.Kind = symbolize.KindJIT
	}
	if f.Kind == symbolize.KindJIT && f.Mapping != jitMapping {
		f.Mapping = MethodMapping
	}
	return symbolize.Intern(f)
}

// MethodSymbol is MethodOf a frame of a VM.
func MethodSymbol(f vmruntime.Frame) symbolize.Symbol {
	return MethodOf(symbolize.Intern(vmFrame(f, false, vmruntime.Site{Kind: vmruntime.Compiled}, &VM{})))
}
