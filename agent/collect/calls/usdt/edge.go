package usdt

import (
	"bytes"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// names turns the kernel side's record of a call into its edge.
type names [len(languages)]unique.Handle[symbol.Mapping]

func newNames() (n names) {
	for i, l := range languages {
		n[i] = unique.Make(symbol.Mapping{File: "[interpreter:" + l.title + "]"})
	}
	return n
}

// edge returns the edge of a call; false if the callee has no name. A method is identified by
// class, name and file. Before PHP 8.4 added lines to the names of closures, all closures of one
// class and file are one method.
func (n names) edge(c *bpf.NamedCall) (profile.Edge, bool) {
	if int(c.Language) >= len(languages) {
		return profile.Edge{}, false
	}
	callee, ok := n.method(c.Language, c.CalleeClass[:], c.CalleeName[:], c.CalleeFile[:])
	if !ok {
		return profile.Edge{}, false
	}
	caller, ok := n.method(c.Language, c.CallerClass[:], c.CallerName[:], c.CallerFile[:])
	if !ok {
		marker := symbol.Frame{Function: "[no PHP caller]", Kind: symbol.KindMarker, Mapping: n[c.Language]}
		if c.CallerUnknown != 0 {
			marker.Function = "[unknown caller]"
		}
		caller = symbol.Intern(marker)
	}
	return profile.Edge{Caller: caller, Site: profile.Site{Line: int32(c.CallerLine), Offset: -1}, Callee: callee}, true
}

// method returns a function's symbol; false if it has neither name nor file.
func (n names) method(language uint8, class, name, file []byte) (symbol.Symbol, bool) {
	function := text(name)
	f := symbol.Frame{Function: function, File: text(file), Kind: symbol.KindInterpreted, Mapping: n[language]}
	switch {
	case function == "" && f.File == "":
		return symbol.Symbol{}, false
	case function == "" || languages[language].dialect == bpf.USDTPHP && function == "main" && text(class) == "":
		f.Function = "main" // PHP calls the code of a file outside of its functions so, and gives callers no name
	case text(class) != "":
		f.Function = text(class) + languages[language].separator + function
	}
	f.Function, f.File = symbol.CleanName(f.Function), symbol.CleanName(f.File)
	return symbol.Intern(f), true
}

// text is a string that ends with a zero byte. One that fills its field was probably cut, and is
// marked.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 && i < len(b)-1 {
		return string(b[:i])
	}
	return string(b[:len(b)-1]) + "…"
}
