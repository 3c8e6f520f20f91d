package hotspot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// stable reports whether a method has the same name in another run of the program, and one that
// files of HotSpot can have.
func stable(systemName string) bool {
	name, signature, ok := strings.Cut(systemName, "(")
	if !ok || !strings.Contains(name, ".") || signature == "" {
		return false
	}
	for _, generated := range []string{"$$Lambda", "LambdaForm$", "/0x", "+0x", "GeneratedMethodAccessor",
		"GeneratedConstructorAccessor", "$Proxy"} {
		if strings.Contains(name, generated) {
			return false
		}
	}
	return !strings.ContainsFunc(systemName, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("_$./<>()[;", r))
	})
}

// pattern is a method as HotSpot's files name it: a/B.c(I)V.
func pattern(systemName string) string {
	name, signature, _ := strings.Cut(systemName, "(")
	dot := strings.LastIndexByte(name, '.')
	return strings.ReplaceAll(name[:dot], ".", "/") + name[dot:] + "(" + signature
}

// command is a method as compile commands name it: a/B.c (I)V. without the space, JDK 8 warns and
// takes all overloaded methods.
func command(systemName string) string { return strings.Replace(pattern(systemName), "(", " (", 1) }

// Flags are what the JVM's command line needs besides a file.
func (p *Plan) Flags() (flags []string) {
	for i := range p.Advice {
		if a := &p.Advice[i]; a.Kind == Guard {
			flags = append(flags, fmt.Sprintf("-XX:TypeProfileMajorReceiverPercent=%d", a.Percent))
		}
	}
	return flags
}

// HasMethods reports whether there is advice for a file: about methods.
func (p *Plan) HasMethods() bool {
	return slices.ContainsFunc(p.Advice, func(a Advice) bool { return a.Kind != Guard })
}

// A directive is one element of a file of compiler directives.
type directive struct {
	Match []string `json:"match"`
	C2    c2       `json:"c2"`
}

type c2 struct {
	Inline []string `json:"inline"`
}

// everywhere matches all methods.
const everywhere = "*.*"

// Directives returns the advice about methods for -XX:CompilerDirectivesFile, and for jcmd
// Compiler.directives_add. Methods to inline are inlined into all callers: in the next run C2 may
// compile the recorded calls as a part of other methods, depending on what it inlines where.
// HotSpot applies the first directive that matches, so those about single methods come first and
// have everything.
func (p *Plan) Directives() []byte {
	var inline []string
	without := map[string][]string{}
	for i := range p.Advice {
		switch a := &p.Advice[i]; a.Kind {
		case Inline:
			inline = append(inline, "+"+pattern(a.Callee))
		case DontInline:
			for _, root := range a.Into {
				without[root] = append(without[root], "-"+pattern(a.Callee))
			}
		}
	}
	list := []directive{}
	for _, root := range slices.Sorted(maps.Keys(without)) {
		list = append(list, directive{[]string{pattern(root)}, c2{append(without[root], inline...)}})
	}
	if len(inline) > 0 {
		list = append(list, directive{[]string{everywhere}, c2{inline}})
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // <init>
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(list) // strings and slices of them: it cannot fail
	return out.Bytes()
}

// Commands returns the advice about methods for -XX:CompileCommandFile, such as .hotspot_compiler.
// Unlike directives, those not to inline a method apply to all callers.
func (p *Plan) Commands() []byte {
	var out bytes.Buffer
	for i := range p.Advice {
		switch a := &p.Advice[i]; a.Kind {
		case Inline:
			fmt.Fprintf(&out, "inline %s\n", command(a.Callee))
		case DontInline:
			fmt.Fprintf(&out, "dontinline %s\n", command(a.Callee))
		}
	}
	return out.Bytes()
}
