package target

import (
	"strings"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// vmName is what profiles show for a place that the VM names with these frames. Code is the mapping of compiled code.
func vmName(frames []vmruntime.Frame, site vmruntime.Site, code unique.Handle[symbolize.Mapping]) (n Name) {
	for i, f := range frames {
		if f.Approximate {
			n.BCIs = append(n.BCIs, -1)
			n.Symbols = append(n.Symbols, symbolize.Intern(inlinedIn(f, site, code)))
		}
		n.Enters = n.Enters || i == 0 && f.Enters && site.Kind == vmruntime.Interpreted
		f.Approximate = false
		n.BCIs = append(n.BCIs, int32(f.BCI))
		n.Symbols = append(n.Symbols, symbolize.Intern(vmFrame(f, i < len(frames)-1, site, code)))
	}
	return n
}

// inlinedIn stands for code of a method, or of one that was inlined in it: the VM does not say which.
func inlinedIn(f vmruntime.Frame, site vmruntime.Site, code unique.Handle[symbolize.Mapping]) symbolize.Frame {
	out := vmFrame(f, true, site, code)
	out.Function = "[inlined in " + f.Function + "]"
	out.SystemName, out.File, out.Line = out.Function, "", 0
	return out
}

// vmFrame is a frame of the VM as profiles show it. It has no address: that differs from one run to the next, and would make many frames
// of a line.
func vmFrame(f vmruntime.Frame, inlined bool, site vmruntime.Site, code unique.Handle[symbolize.Mapping]) symbolize.Frame {
	out := symbolize.Frame{
		Function: f.Function, SystemName: f.Function + f.Signature, File: f.File, Line: f.Line,
		Kind: symbolize.KindJIT, Inlined: inlined, Approximate: f.Approximate, Mapping: code,
	}
	switch site.Kind {
	case vmruntime.Interpreted:
		out.Kind, out.Mapping = symbolize.KindInterpreted, interpreterMapping(code)
	case vmruntime.Stub:
		out.Kind = symbolize.KindStub
	}
	return out
}

// Mappings of what no file holds. That of a VM's method is the same whatever executes it; interpreted frames have one of their own.
const (
	jitPrefix         = "[jit:"
	interpreterPrefix = "[interpreter:"
)

var noMapping = unique.Make(symbolize.Mapping{})

// jitFile is the file in mappings of code that a VM of that runtime has compiled: [jit:HotSpot].
func jitFile(r bridge.Runtime) string { return jitPrefix + r.Title() + "]" }

// interpreterMapping is where interpreted frames are of the VM whose code is in that mapping.
func interpreterMapping(code unique.Handle[symbolize.Mapping]) unique.Handle[symbolize.Mapping] {
	return unique.Make(symbolize.Mapping{File: interpreterPrefix + strings.TrimPrefix(code.Value().File, jitPrefix)})
}

// methodMapping is the mapping of methods of the VM whose code is in that mapping.
func methodMapping(code unique.Handle[symbolize.Mapping]) unique.Handle[symbolize.Mapping] {
	if code == (unique.Handle[symbolize.Mapping]{}) {
		return noMapping
	}
	file := code.Value().File
	if vm, interpreted := strings.CutPrefix(file, interpreterPrefix); interpreted {
		file = jitPrefix + vm
	}
	return unique.Make(symbolize.Mapping{File: file})
}

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
	if f.Kind == symbolize.KindJIT {
		f.Mapping = methodMapping(f.Mapping)
	}
	return symbolize.Intern(f)
}

// MethodSymbols returns what makes a frame of the VM the symbol of its method, as MethodOf does. It may be used when the VM is gone.
func (g *VM) MethodSymbols() func(vmruntime.Frame) symbolize.Symbol {
	code := g.mapping
	return func(f vmruntime.Frame) symbolize.Symbol {
		return MethodOf(symbolize.Intern(vmFrame(f, false, vmruntime.Site{Kind: vmruntime.Compiled}, code)))
	}
}
