// Package cpython names the code of a running CPython interpreter from outside, by reading its
// memory. It needs no flag and no help from the interpreter, and it writes nothing.
//
//	image, err := cpython.Runtime{}.Image(file)     // once per libpython or statically linked python
//	p, err := image.Attach(target)                  // once per process; *cpython.Process
//	layout := p.Layout()                            // for a walker of its frames
//	frames, err := p.Lookup(site)                   // a code object and an instruction that a walk met
//
// Files of this package:
//
//	runtime, image, process     the three types of vmruntime
//	offsets, debugoffsets       where fields are: by version, and by the interpreter's own account
//	lookup                      from a site of a stack to a frame
//	code, objects               code objects; strings and bytes objects
//	lines                       line tables: of 3.9, of 3.10, of 3.11 and later
//	names                       names for people: modules by the paths of files
//
// Nothing that comes out of a process is trusted. Every count and length has a bound next to the
// code that follows it. Arithmetic on addresses may wrap, and then the read fails. Names are
// cleaned.
package cpython

import (
	"path"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Runtime recognises CPython.
type Runtime struct{}

// Name is "cpython".
func (Runtime) Name() string { return "cpython" }

// Title is "CPython".
func (Runtime) Title() string { return "CPython" }

// Language is "Python".
func (Runtime) Language() string { return "Python" }

// Recognise reports whether the mapped file of that name may have the interpreter: libpython, or an
// executable that is called python. The executable may be a few kilobytes that load libpython.
func (Runtime) Recognise(file string) bool {
	name := strings.TrimSuffix(path.Base(file), " (deleted)")
	if rest, ok := strings.CutPrefix(name, "libpython3."); ok {
		_, rest = cutDigits(rest)
		return strings.HasPrefix(strings.TrimPrefix(rest, "t"), ".so")
	}
	rest, ok := strings.CutPrefix(name, "python")
	if !ok {
		return false
	}
	rest = strings.TrimPrefix(rest, "3")
	if minor, ok := strings.CutPrefix(rest, "."); ok {
		_, rest = cutDigits(minor)
	}
	return rest == "" || rest == "t" || rest == "-bin"
}

// cutDigits splits a text behind the digits that it begins with.
func cutDigits(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}

// Image reads the symbols of a file. It returns nil, nil for one that has no interpreter, as an
// executable that loads libpython.
func (Runtime) Image(file *elffile.File) (vmruntime.Image, error) {
	image, err := newImage(file)
	if image == nil {
		return nil, err
	}
	return image, nil
}
