package vmruntime

import (
	"math"
	"slices"
	"time"
)

// Capabilities of a Process beyond naming code. A Process implements those that its VM allows;
// callers ask for each with a type assertion and do without where it is missing. As those of
// Process, their methods are called from one goroutine at a time.

// A Preparer reads what look-ups of many sites need, with fewer reads than these take one by one.
type Preparer interface {
	// Prepare has the look-ups of these sites need few reads. What cannot be read they try again.
	Prepare([]Site)
}

// A Continuer has left some work of its attachment for later.
type Continuer interface {
	// Continue does some of it, for some milliseconds, and reports whether there is more. An error
	// is of what it was to do now.
	Continue() (more bool, err error)
}

// A Placer knows which compiled sites have the same frames, as most have that differ in their
// addresses.
type Placer interface {
	// Place says where in its compilation a site is: look-ups of two sites of one Version with the
	// same place and Exact return the same frames. ok is false if the site is to be looked up
	// first. It reads nothing.
	Place(Site) (place uint64, ok bool)
}

// A ThreadLister lists the threads that may run the guest's code.
type ThreadLister interface {
	// Threads lists those that run now, at most MaxListedThreads. A thread that starts or ends
	// meanwhile may be absent.
	Threads() ([]Thread, error)
}

// A LockLister lists which threads wait for locks.
type LockLister interface {
	// LockWaits lists those that wait now, of up to MaxListedThreads threads.
	LockWaits() ([]LockWait, error)
}

// A LockWait is a thread that waits to enter a monitor, or that parks for an object, which may be a
// lock.
type LockWait struct {
	Thread  uint32 // its id, as in Thread
	Monitor uint64 // address of the VM's structure for the monitor; 0 if the thread parks
	Object  uint64 // address of the object
	Class   string // class of the object; "" if unknown
	Owner   uint32 // id of the thread that has the lock; 0 if unknown
}

// A VirtualLister lists virtual threads.
type VirtualLister interface {
	// VirtualThreads draws about most of them. draw returns a random number from 0 to n-1. While
	// the program goes on, a few may be missing. It is an error if the VM does not keep a list of
	// all of them.
	VirtualThreads(most int, draw func(n int) int) ([]VirtualThread, error)
	// Collections are those that have begun. ErrMoved during one that stops the program; 0 if the
	// VM does not say.
	Collections() (uint64, error)
	// DescribeVirtual says what threads did whose words were read at one moment, which is not
	// before Collections returned collections. ErrMoved if another has begun since: then some of
	// the words are addresses of other objects, and what is returned may be of these.
	DescribeVirtual(words []VirtualWords, collections uint64) ([]VirtualDoing, error)
}

// A VirtualThread is one that was drawn. The addresses are of objects: a collector may move them.
type VirtualThread struct {
	ID           uint64  // Thread.threadId()
	Weight       float64 // how many it stands for, itself included
	Continuation uint64  // address of the object that has its frames
	Mounted      uint64  // address of a byte, which is not 0 while the thread is on a carrier
	State        uint64  // address of the 32 bits of VirtualWords.State
	Blocker      uint64  // address of the 64 bits of VirtualWords.Blocker
	// Waiter is the same of VirtualWords.Waiter; 0 if no virtual thread waits for a monitor without
	// a carrier.
	Waiter    uint64
	Words     VirtualWords
	OnCarrier bool // as of about the same moment as Words
}

// VirtualWords are what a virtual thread says of itself.
type VirtualWords struct {
	State           uint32
	Blocker, Waiter uint64
}

// A VirtualDoing is what a virtual thread does.
type VirtualDoing struct {
	State VirtualState
	Class string // class of the object that it waits for; "" if there is none, or it is unknown
	Owner uint64 // Thread.threadId() of the thread that has the lock; 0 if unknown
}

// A VirtualState is what a virtual thread does.
type VirtualState uint8

// States of virtual threads.
const (
	VirtualRuns    VirtualState = iota // or may, or waits as the thread of the kernel does that it is on
	VirtualParked                      // it has left its carrier until another thread unparks it, or time has passed
	VirtualBlocked                     // it has left its carrier until it gets a monitor
	VirtualWaits                       // it has left its carrier in Object.wait
)

// A ThreadNamer knows how the guest calls its threads.
type ThreadNamer interface {
	// ThreadNames are the names of threads by id, as in Thread. They are the guest's words. Some
	// may be missing.
	ThreadNames() (map[uint32]string, error)
}

// MaxListedThreads bounds how many threads of one VM are read.
const MaxListedThreads = 8 << 10

// A Thread is one that may run the guest's code.
type Thread struct {
	ID      uint32 // ID as the thread itself sees it: in the pid namespace of the VM
	Address uint64 // address of the VM's structure for it
}

// An AllocationCounter knows where the VM counts the bytes that each thread has allocated.
type AllocationCounter interface {
	// Allocated reads the counts of all threads, at most MaxListedThreads, in two batches. A count
	// that its thread changes while it is read may lack the thread's current allocation buffer, or
	// have it twice. Allocated needs nothing but mem: any goroutine may call it.
	Allocated(mem Memory) ([]ThreadAllocation, error)
}

// A ThreadAllocation is how many bytes a thread has allocated since it started.
type ThreadAllocation struct {
	Thread
	Bytes uint64
}

// A ClassReader names classes.
type ClassReader interface {
	// ClassName names the class whose structure has that address. It remembers the name until
	// epoch, counted as in Site.Epoch, changes.
	ClassName(class uint64, epoch uint32) (string, error)
}

// A HeapReader knows the heap of objects.
type HeapReader interface {
	// HeapBounds are the addresses [low, high) of the heap. ok is false if they, or the form of
	// objects, are not known. moving reports that the collector moves objects while threads run, so
	// that an address is worthless a moment later.
	HeapBounds() (low, high uint64, moving, ok bool)
	// PlaceAt says what an address in the heap is in; bases are values of registers, where the
	// object may begin. The answer is right if no collection moved the object since the address was
	// seen.
	PlaceAt(addr uint64, bases ...uint64) (Place, error)
}

// A CardReader knows the cards in which a collector notes stores of references into old objects.
type CardReader interface {
	// Cards says where they are. An error says that stores call nothing in this VM, or that the
	// table of cards is not known.
	Cards() (Cards, error)
	// Age is how long objects at an address in the heap have lived: young, survivor, old,
	// humongous; "" if it is not known.
	Age(addr uint64) (string, error)
}

// Cards are those of G1: a byte for each Bytes bytes of the heap.
type Cards struct {
	Base  uint64 // address that the card of address 0 would have; it may wrap around
	Bytes uint64 // a power of two
	Queue uint64 // cards that a thread makes dirty until it calls the VM
	// Region is the size in bytes, a power of two, of the regions at whose start humongous objects
	// begin; 0 if it is not known.
	Region uint64

	// Narrow says that compiled code may hold a reference as 32 bits n: the object is at
	// NarrowBase + n<<NarrowShift.
	Narrow      bool
	NarrowBase  uint64
	NarrowShift uint8
}

// Range returns the addresses [low, high) that a card is of.
func (c Cards) Range(card uint64) (low, high uint64) {
	low = (card - c.Base) * c.Bytes
	return low, low + c.Bytes
}

// Starts returns where a humongous object may begin that has the address: at the start of its
// region, or of one of the n-1 before.
func (c Cards) Starts(addr uint64, n int) (starts []uint64) {
	if c.Region == 0 {
		return nil
	}
	for at := addr &^ (c.Region - 1); len(starts) < n; at -= c.Region {
		starts = append(starts, at)
		if at < c.Region {
			break
		}
	}
	return starts
}

// Within returns the addresses in a card that values of registers and words of a stack may be: as
// they are, or as narrow references in either half. Each is there once, in the order of the values.
func (c Cards) Within(card uint64, values []uint64) (addrs []uint64) {
	low, high := c.Range(card)
	add := func(addr uint64) {
		if addr >= low && addr < high && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	for _, v := range values {
		add(v)
		if c.Narrow {
			add(c.NarrowBase + v&math.MaxUint32<<c.NarrowShift)
			add(c.NarrowBase + v>>32<<c.NarrowShift)
		}
	}
	return addrs
}

// A Place is where an address is in an object.
type Place struct {
	Class  string // name of the object's class
	Offset uint64 // bytes from the start of the object
	Field  string // name of the field there, "" in headers, gaps and arrays
	Index  int    // index of the element of an array there, -1 if there is none
}

// A VersionReader follows the code versions of methods: what was compiled, and why it was given up.
type VersionReader interface {
	Process
	// Described describes the compilation that a compiled site is in, as it was when Lookup read
	// it: only InUse may have changed since. ErrStale if another version is there now.
	Described(Site) (Compilation, error)
	// Announced names the method of a compilation that was announced.
	Announced(CodeLoad) Frame
	// Inlined returns the methods that are compiled into the compilation of a site, without the
	// compiled method itself: each once, in no order, as addresses and as names. ErrStale if
	// another version is there now.
	Inlined(Site) (methods []uint64, names []string, err error)
	// States reads what has become of compilations, in their order: one read of some bytes each, in
	// one batch. Memory that was freed and is not used again may seem to be given up.
	States([]Compilation) ([]CodeState, error)
	// Traps reads why code of these methods was left for the interpreter so far. Methods are absent
	// for which the VM counted nothing yet, or that are not what they were.
	Traps(methods []uint64) (map[uint64]Traps, error)
}

// A CodeState is what has become of a compilation.
type CodeState uint8

const (
	CodeUnknown CodeState = iota // it could not be read
	CodeInUse                    // new calls may enter it
	CodeGivenUp                  // no new call enters it; frames may still be in it
	CodeFreed                    // its memory is free, or is used for something else
)

// Traps are the VM's counts of uncommon traps in one method: how often code of the method, or code
// that the method is inlined in, was left for the interpreter because the compiler had assumed
// otherwise.
type Traps struct {
	// Reasons has the VM's names of reasons: class_check, unstable_if. Reasons that never occurred
	// are absent. HotSpot counts to 255.
	Reasons map[string]int
	// Decompiles is how many optimised compilations of the method itself were given up, for
	// whichever reason.
	Decompiles int
}

// A FlagReader reads the VM's command line flags.
type FlagReader interface {
	// Flag reads one of type bool. An error says that the VM has no such flag, or that it cannot be
	// read.
	Flag(name string) (bool, error)
	// Number reads one that is an integer.
	Number(name string) (int64, error)
}

// A MethodCounter reads the VM's own counters of all methods.
type MethodCounter interface {
	// Methods are the addresses of all methods of the classes that are loaded.
	Methods() ([]uint64, error)
	// Counts reads the counters of methods; took is the time between the first and the last read of
	// counters.
	Counts(methods []uint64) (_ []MethodCounts, took time.Duration, _ error)
}

// A VirtualRunner may run threads that the kernel does not know: they take turns on threads of the
// kernel.
type VirtualRunner interface {
	// RanVirtualThreads reports whether it has run any so far.
	RanVirtualThreads() (bool, error)
}

// A JDK is a process that runs a Java platform.
type JDK interface {
	// FeatureRelease is the platform's: 8, 17, 25.
	FeatureRelease() int
}

// A ClassNamer is a Runtime whose classes the kernel side names by the bytes with which the VM
// names them.
type ClassNamer interface {
	// ClassName makes these bytes a name for people, the same in every run. They may be anything.
	ClassName(text []byte) string
}
