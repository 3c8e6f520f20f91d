// Package hotspot names the code of a running HotSpot JVM from outside, by reading its memory. It
// needs no flag, no agent library and no help from the JVM, and it writes nothing.
//
//	image, err := hotspot.Runtime{}.Image(file)     // once per libjvm
//	p, err := image.Attach(target)                  // once per process; *hotspot.Process
//	layout := p.Layout()                            // for a walker of its stacks
//	frames, err := p.Lookup(site)                   // a place that a walk met
//
// What reads a process is in rooms, each of one kind of data. The rooms of the first group know
// nothing of a process; those of the second one read one, and a Process is made of them:
//
//	vmstructs      the tables in which HotSpot describes its own C++ classes
//	codecache      the heaps, blobs and stubs of the code cache
//	debuginfo      what is inlined at which instruction, and lines
//	calldata       calls in bytecode, what they were resolved to, and their counts
//	javaheap       objects, their headers and fields, generations of the heap
//	methodinfo     methods: names, lines, and what tells one from another
//
//	javavm         what all others share: memory, build, version, threads, layout
//	nmethod        compiled code: from a site of a stack to frames
//	javaobject     objects and classes: which object holds an address
//	javathread     threads of Java: names, locks, virtual threads
//	methodcounts   the counts of calls and branches in methods
//
// Package vmtest has fakes of a VM's memory for tests. This package recognises HotSpot (runtime),
// attaches (process), lists the abilities of a Process (capabilities), and has the table of what
// each JDK moved (jdks).
//
// Nothing that comes out of a process is trusted. Every count, length and chain has a bound next to
// the code that follows it. Arithmetic on addresses may wrap, and then the read fails. Names are
// cleaned.
package hotspot

import (
	"path"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// Runtime recognises HotSpot.
type Runtime struct{}

// Name is "hotspot".
func (Runtime) Name() string { return "hotspot" }

// Title is "HotSpot".
func (Runtime) Title() string { return "HotSpot" }

// Language is "Java".
func (Runtime) Language() string { return "Java" }

// Recognise reports whether the mapped file of that name may be HotSpot's library.
func (Runtime) Recognise(file string) bool { return path.Base(file) == "libjvm.so" }

// Image reads the symbols and probes of a libjvm. It returns nil, nil for a file that is not
// HotSpot's, because other VMs have a libjvm.so too.
func (Runtime) Image(file *elffile.File) (vmruntime.Image, error) {
	b, err := javavm.NewBuild(file)
	if b == nil {
		return nil, err
	}
	return &Image{b}, nil
}
