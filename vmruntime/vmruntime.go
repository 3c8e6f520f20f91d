// Package vmruntime says what a guest VM keeps at an address.
//
// Three lifetimes, three types. A Runtime recognises its VMs: a Library by their shared object, a
// CodeMapper by the map that they write of their code. An Image is what one build of that object
// taught us (offsets, probe sites), kept by build id; a Process is one running guest. "Not mine" is
// nil, nil, not an error.
//
//	img, err := rt.Image(file)            // once per build
//	p, err := img.Attach(target)          // once per process
//	frames, err := p.Lookup(site)         // once per distinct site of a sampled stack
//
// Everything that comes out of a Memory is hostile: implementations cap every count, length and
// pointer chain.
package vmruntime

import (
	"errors"
	"time"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A Runtime is one kind of VM. Each also implements Library or CodeMapper, by which its VMs are
// found.
type Runtime interface {
	// Name is the kind's name for labels: "hotspot".
	Name() string
	// Title is the kind's name for people: "HotSpot".
	Title() string
	// Language is what its programs are written in, for people: "Java"; "" if that differs.
	Language() string
}

// A Library is a Runtime that recognises the shared object of its VMs.
type Library interface {
	Runtime
	// Recognise reports by the name of a mapped file whether it is worth to be opened for Image.
	Recognise(file string) bool
	// Image reads what file teaches; nil, nil if it is not of this kind. It does not keep file.
	Image(file *elffile.File) (Image, error)
}

// An Image is what one build of a VM's shared object taught. It may be used for many processes at
// once.
type Image interface {
	// Attach opens one process. ErrStarting if its VM is not yet far enough.
	Attach(Target) (Process, error)
}

// A Target is one process to attach to.
type Target struct {
	Memory Memory
	Bias   uint64 // load bias of the VM's shared object: address in the process minus address in the file
	// Epoch says how many times the guest has unloaded classes by now, counted as in Site.Epoch.
	// Nil if that is not known: then the names of interpreted methods cannot be checked, nor kept
	// for later.
	Epoch func() uint32
	// Seen says what a method structure was when the kernel side met it last in an interpreted
	// frame; false if it did not, or does not know any more. Nil if nobody looks.
	Seen func(method uint64) (SeenMethod, bool)
}

// A SeenMethod distinguishes a method structure from later uses of the same memory.
type SeenMethod struct {
	Body  uint64 // address of its body, with the bytecode
	Shape uint64 // numbers in the body: how long the bytecode is, and where its names are
	Name  uint64 // distinguishes its class's constants and its name; 0 if they could not be read
	Since uint32 // Site.Epoch from which on it is known to be that
}

// SeenNameHash is the factor by which the kernel side multiplies what SeenMethod.Name is made of.
const SeenNameHash = 0x9e3779b97f4a7c15

// EpochChange is what is added to an epoch when a method structure was met as another method than
// before, without classes being unloaded. What is below it counts classes that were unloaded.
const EpochChange = 1 << 20

// A Memory reads one target's address space. Implementations never write, never stop the target,
// and bound the time one call may take.
type Memory interface {
	// Read fills p from the target's address addr, or fails.
	Read(addr uint64, p []byte) error
	// ReadBatch fills as many of the ranges as it can and marks those with OK.
	ReadBatch(ranges []Range) error
}

// A Range is one piece of a batched read.
type Range struct {
	Addr uint64
	Buf  []byte
	OK   bool // set by ReadBatch
}

// SiteKind says how the kernel side recognised a guest frame.
type SiteKind uint8

const (
	// Compiled is code of one compilation of a method, native wrappers included.
	Compiled SiteKind = iota + 1
	// Interpreted is a frame of the bytecode interpreter.
	Interpreted
	// Stub is code that the VM generated for itself: runtime stubs, adapters, vtable chunks,
	// codelets.
	Stub
)

// A Site is one physical frame of a guest, as the kernel saw it at the moment of the sample. It is
// comparable and identifies a code version: code memory that was reused since gives another Site.
type Site struct {
	Kind    SiteKind
	Exact   bool   // PC is the sampled instruction; otherwise it is a return address
	Version uint32 // Compiled: low 28 bits of the compile id
	PC      uint64 // Compiled, Stub: address in the guest
	Method  uint64 // Interpreted: address of the VM's method structure
	BCI     int32  // Interpreted: bytecode index, -1 if unknown
	Epoch   uint32 // how many times the guest had unloaded or changed methods when the sample was taken (EpochChange)
}

// Tier says what executes a frame.
type Tier uint8

const (
	TierUnknown     Tier = iota
	TierInterpreter      // bytecode interpreter
	TierC1               // HotSpot levels 1-3
	TierC2               // HotSpot level 4
	TierNative           // wrapper around a native method
	TierStub             // code the VM generated for itself
)

// A Frame is one logical frame of a guest: a method, or a named piece of VM-generated code.
type Frame struct {
	Function  string // java.util.HashMap.get
	Signature string // (Ljava/lang/Object;)Ljava/lang/Object;
	File      string // HashMap.java, empty if unknown
	Line      int    // 0 if unknown
	BCI       int    // bytecode index, -1 if unknown
	Tier      Tier
	Enters    bool // it may enter a monitor there, if it is interpreted and calls the VM
	// Approximate marks an innermost frame of a compilation where the VM did not record what is
	// inlined: it is this method, or a method that was inlined in it.
	Approximate bool
}

// ErrStarting says that a VM is not yet far enough to be attached to. Try again a little later.
var ErrStarting = errors.New("the VM is still starting")

// Errors that callers count apart or try again after.
var (
	// ErrStale: the code or method of that site is gone and its memory may hold something else. The
	// site must not be named after what is there now.
	ErrStale = errors.New("code was unloaded before it could be named")
	// ErrUnknown: the guest keeps nothing at that site.
	ErrUnknown = errors.New("no guest code at this address")
	// ErrMoved: a collection moved objects while they were read.
	ErrMoved = errors.New("the collector moved the objects meanwhile")
	// ErrMalformed: the guest's own tables contradict themselves or pass a bound.
	ErrMalformed = errors.New("guest data is malformed")
)

// A CodeLoad reports that a compilation was installed. The strings are what the VM announced,
// possibly cut at the kernel side's bounds; they name the method even when the code is gone before
// it can be read.
type CodeLoad struct {
	At                     time.Duration // CLOCK_MONOTONIC
	Begin                  uint64        // first instruction
	Size                   uint32        // bytes
	Version                uint32        // low 28 bits of the compile id
	Class, Name, Signature string        // in the VM's internal form: java/util/HashMap
}

// A Process is one guest. Its methods are called from one goroutine at a time.
type Process interface {
	// Lookup resolves a site to frames, innermost first: all but the last were inlined into the
	// next one.
	Lookup(Site) ([]Frame, error)
	// Loaded reports that a compilation appeared, in the order of the event stream.
	Loaded(CodeLoad)
	// Notes are facts about this guest that a reader of its profile must know, one sentence each.
	Notes() []string
	// Describe names the VM and its version for people: "OpenJDK 64-Bit Server VM 17.0.15+6".
	Describe() string
}
