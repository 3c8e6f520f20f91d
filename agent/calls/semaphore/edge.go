package semaphore

import (
	"bytes"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// names turns what the kernel side read of a call into its edge.
type names struct {
	mapping unique.Handle[symbolize.Mapping]
}

func newNames() names {
	return names{unique.Make(symbolize.Mapping{File: "[interpreter:PHP]"})}
}

// edge returns the edge of a call; false if the callee has no name. A method is its class, name and file: before PHP
// 8.4 gave closures names with their lines, those of one class and file are one method.
func (n names) edge(c *bpf.NamedCall) (calls.Edge, bool) {
	callee, ok := n.method(c.CalleeClass[:], c.CalleeName[:], c.CalleeFile[:])
	if !ok {
		return calls.Edge{}, false
	}
	caller, ok := n.method(c.CallerClass[:], c.CallerName[:], c.CallerFile[:])
	if !ok {
		caller = symbolize.Intern(symbolize.Frame{Function: "[no PHP caller]", Kind: symbolize.KindMarker, Mapping: n.mapping})
	}
	return calls.Edge{Caller: caller, Site: calls.Site{Line: int32(c.CallerLine), Offset: -1}, Callee: callee}, true
}

// method returns a function's symbol; false if it has neither name nor file.
func (n names) method(class, name, file []byte) (symbolize.Symbol, bool) {
	function := text(name)
	f := symbolize.Frame{Function: function, File: text(file), Kind: symbolize.KindInterpreted, Mapping: n.mapping}
	switch {
	case function == "" && f.File == "":
		return symbolize.Symbol{}, false
	case function == "" || function == "main" && len(text(class)) == 0:
		f.Function = "main" // the code of a file outside of its functions: PHP calls it so, and gives callers no name
	case text(class) != "":
		f.Function = text(class) + "::" + function
	}
	f.Function, f.File = symbolize.CleanName(f.Function), symbolize.CleanName(f.File)
	return symbolize.Intern(f), true
}

// text is a string that ends with a zero byte. One that fills its place was probably cut, and says so.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 && i < len(b)-1 {
		return string(b[:i])
	}
	return string(b[:len(b)-1]) + "…"
}
