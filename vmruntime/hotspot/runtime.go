// Package hotspot names the code of a running HotSpot JVM from outside, by reading its memory. It
// needs no flag, no agent library and no help from the JVM, and it writes nothing.
//
//	image, err := hotspot.Runtime{}.Image(file)     // once per libjvm
//	p, err := image.Attach(target)                  // once per process; *hotspot.Process
//	layout := p.Layout()                            // for a walker of its stacks
//	frames, err := p.Lookup(site)                   // a place that a walk met
//
// Packages below this one read one thing each, and know nothing of a process:
//
//	vmstructs   the tables in which HotSpot describes its own C++ classes
//	codecache   the heaps, blobs and stubs of the code cache
//	debuginfo   what is inlined at which instruction, and lines
//	calldata    calls in bytecode, what they were resolved to, and their counts
//	javaheap    objects, their headers and fields, generations of the heap
//	vmtest      fakes of a VM's memory for tests
//
// Files of this package. A VM and its layout:
//
//	runtime, image, process     the three types of vmruntime
//	jdks                        what each JDK moved; the VM's version
//	layout, layoutbuild         what the kernel side must know
//	threads, loom               platform threads, virtual threads
//
// Names of code:
//
//	lookup                      from a site of a stack to frames
//	code, evidence, inlinetree  a compilation, decoded
//	compilations, machinecode   all compilations; prologues, epilogues and calls in machine code
//	method, methodreader        a Method; reading many at a time
//	names, stubnames            names for people: methods and classes; code that the VM generates
//	versiontable                compilations that are gone
//	classlist, cache            all classes; what was read, up to a number of bytes
//
// Counts of calls:
//
//	profiles, counts            the counts of methods, with and without names
//	callsites, callees          the calls in a method, and what they lead to
//	dispatch                    the methods of receivers
//
// Objects:
//
//	object, objectsearch        which object holds an address
//	class, objecttable          classes and their fields; how to recognise a class
//	objectschema, objectbuild   where the VM has what a layout of objects says
//	headerbuild                 the form of an object's header
//
// Nothing that comes out of a process is trusted. Every count, length and chain has a bound next to
// the code that follows it. Arithmetic on addresses may wrap, and then the read fails. Names are
// cleaned.
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

// Title is "HotSpot".
func (Runtime) Title() string { return "HotSpot" }

// Recognise reports whether the mapped file of that name may be HotSpot's library.
func (Runtime) Recognise(file string) bool { return path.Base(file) == "libjvm.so" }

// Image reads the symbols and probes of a libjvm. It returns nil, nil for a file that is not
// HotSpot's, because other VMs have a libjvm.so too.
func (Runtime) Image(file *elffile.File) (vmruntime.Image, error) {
	b, err := newBuild(file)
	if b == nil {
		return nil, err
	}
	return &Image{b}, nil
}
