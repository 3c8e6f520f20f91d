// Package hotspot knows what a HotSpot JVM keeps where: it names code of a running guest from outside, by reading the
// guest's memory. No flag, no agent library and no help from the guest is needed, and nothing is written.
//
//	image, err := hotspot.Runtime{}.Image(file)     // once per libjvm
//	p, err := image.Attach(target)                  // once per guest; *hotspot.Process
//	layout := p.Layout()                            // for whoever walks its stacks
//	frames, err := p.Lookup(site)                   // what a walk found
//
// The way of the data, a file each:
//
//	vmstructs   the tables in which HotSpot describes its own C++ classes
//	schema      what of these is used: offsets and addresses, and what each JDK moved
//	heap        where code is
//	segmap      which code blob an address belongs to
//	blob        the header of a code blob
//	walk        all code blobs, in batches
//	code        one compilation, read and checked against being replaced meanwhile
//	scopes      what was inlined at which instruction
//	methods     the names and lines of Methods
//	stubs       the names of code that the VM generated for itself
//	versions    who was compiled where, for when the code is gone
//	layout      what the kernel side must know
//
// Nothing that comes out of a guest is trusted: every count, length and chain has a bound beside the code that follows
// it, all arithmetic on addresses may wrap (the read fails then), and names are cleaned.
package hotspot

import (
	"path"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Runtime recognises HotSpot.
type Runtime struct{}

// Name is "hotspot".
func (Runtime) Name() string { return "hotspot" }

// Recognise reports whether the mapped file of that name may be HotSpot's library.
func (Runtime) Recognise(file string) bool { return path.Base(file) == "libjvm.so" }

// Image reads what a libjvm teaches. It is nil, nil for a file that is not HotSpot's: other VMs call their library so
// as well.
func (Runtime) Image(file *elffile.File) (vmruntime.Image, error) {
	image, err := newImage(file)
	if image == nil {
		return nil, err
	}
	return image, nil
}
