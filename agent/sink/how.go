package sink

import "strings"

// how is a set of ways to execute a method.
type how uint8

const (
	interpreted how = 1 << iota
	jit
	stub
	native
	kernel
	inlined // into its caller
	called  // really, in a frame of its own
)

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
