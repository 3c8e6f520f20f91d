package sink

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// how is a set of ways to execute a method, and of ways to find its context.
type how uint16

const (
	interpreted how = 1 << iota
	jit
	stub
	native
	kernel
	inlined // into its caller
	called  // really, in a frame of its own

	ambiguous // of profile.Certainty
	fitted
	unplaced
)

// uncertain are those that doubt the context.
const uncertain = ambiguous | fitted | unplaced

// marks are the letters that a how is shown as.
var marks = [...]struct {
	how           how
	letter, means string
}{
	{interpreted, "i", "interpreted"},
	{jit, "j", "compiled"},
	{stub, "s", "VM stub"},
	{native, "n", "native"},
	{kernel, "k", "kernel"},
	{ambiguous, "a", "partly ambiguous"},
	{fitted, "f", "partly fitted"},
	{unplaced, "u", "partly unplaced"},
}

// certaintyOf says how the context of a stored sample was found: 0 if it is certain, or nothing is said.
func certaintyOf(sample *pprof.Sample) how {
	switch label(sample, labelContext) {
	case profile.Ambiguous.String():
		return ambiguous
	case profile.Fitted.String():
		return fitted
	case profile.Unplaced.String():
		return unplaced
	}
	return 0
}

// String returns the marks in brackets, or nothing.
func (h how) String() string {
	var letters string
	for _, m := range marks {
		if h&m.how != 0 {
			letters += m.letter
		}
	}
	if letters == "" {
		return ""
	}
	return "[" + letters + "]"
}

// legend explains the marks, in their order.
func (h how) legend() string {
	var list []string
	for _, m := range marks {
		if h&m.how != 0 {
			list = append(list, m.letter+" "+m.means)
		}
	}
	return strings.Join(list, ", ")
}
