package javavm

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// A Layout is everything that the kernel side must know to walk the stacks of one process: where
// code is, how to tell its kinds apart, and where fields are. Offsets are in bytes from the start
// of the object in the field's comment, addresses are the guest's; 0 is a valid offset, but never a
// valid address. Nothing of a JDK needs to be compiled into the kernel side.
type Layout struct {
	JDK int // feature release: 8, 17, 25

	Cache       CacheLayout
	Blob        BlobLayout
	Kinds       BlobKinds
	Thread      ThreadLayout
	Interpreter InterpreterLayout
	Method      methodinfo.Layout
	Loom        LoomLayout

	Objects    javaheap.ObjectLayout
	HasObjects bool // else Missing says why not

	// Missing says what this build or process hides and what does not work without it, one sentence
	// each. It does not change.
	Missing []string
	// Pending says which kinds of code the process has not generated yet; their pointers in Kinds
	// are 0. Refresh fills them in.
	Pending []string
}

// CacheLayout is where code is. The reserved bounds do not change while the process lives.
type CacheLayout struct {
	Heaps           []codecache.Heap // at most 8; HotSpot has up to 3
	Low, High       uint64           // no code is outside
	SegmentShift    uint8            // log2 of the bytes of a segment
	BlockHeaderSize uint32           // HeapBlock, which is at a block's start; the CodeBlob follows
	BlockUsed       uint32           // HeapBlock: a byte, 0 if the block is free
}

// BlobLayout is the header of a CodeBlob, and of an nmethod, which begins with one.
type BlobLayout struct {
	Name              uint32 // pointer to the name of the kind
	Size              uint32 // 32 bits: of the blob, header included
	CodeBegin         uint32 // pointer to the first instruction, or 32-bit offset from the blob
	CodeEnd           uint32 // likewise
	CodeIsOffset      bool   // CodeBegin and CodeEnd are offsets from the blob (JDK 23+)
	FrameSize         uint32 // 32 bits: words
	FrameComplete     uint32 // offset from the first instruction at which the frame stands; signed
	FrameCompleteIs16 bool   // FrameComplete has 16 bits, else 32
	CompileID         uint32 // nmethod: 32 bits
	State             uint32 // nmethod: 8 bits
	OrigPC            uint32 // nmethod: 32-bit offset from the stack pointer, where a deoptimised frame keeps its pc
	DeoptHandler      uint32 // nmethod: pointer to where deoptimised frames return, or offset from the blob
	DeoptHandlerMH    uint32 // the same for call sites of method handles
	HasDeoptHandlerMH bool
	DeoptHandlerIs32  bool // DeoptHandler and DeoptHandlerMH are 32-bit offsets from the blob
}

// BlobKinds distinguishes blobs by the pointer at BlobLayout.Name: all blobs of a kind have the
// same. Other pointers are stubs.
type BlobKinds struct {
	NMethod, Native, Interpreter, Vtable, Adapter, Continuation, Upcall uint64
}

// ThreadLayout leads from the CPU's thread pointer to a JavaThread and its frames.
type ThreadLayout struct {
	// TLSModule is libjvm's number in the dynamic thread vector of every thread, TLSOffset where in
	// that block the current Thread* is. TLSModule is 0 if they are unknown.
	TLSModule, TLSOffset uint64
	// ByID: they are, but a thread is found by its id. Process.Threads has those that run.
	ByID bool
	// Vtable is what the first word of a JavaThread points to, for threads that run Java code;
	// other kinds of Thread have another. 0 if unknown.
	Vtable uint64

	Anchor                 uint32 // JavaThread: a JavaFrameAnchor, the last Java frame while in native code
	LastSP, LastPC, LastFP uint32 // JavaFrameAnchor
	StackBase, StackSize   uint32 // JavaThread: highest address, bytes
	State                  uint32 // JavaThread: 32 bits
	InJava                 uint32 // what that is while the thread runs Java code
	OSThread               uint32 // JavaThread: pointer to its OSThread
	OSThreadID             uint32 // OSThread: 32 bits, the thread's id in the VM's pid namespace
	CallStubReturn         uint64 // return address of a Java method that native code called
	CallWrapper            int32  // entry frame: pointer to its JavaCallWrapper, from the frame pointer
	WrapperAnchor          uint32 // JavaCallWrapper: the JavaFrameAnchor of the Java frames before
	// UpcallStub, a CodeBlob: 32 bits, where its frame has a FrameData, from the stack pointer; 0
	// if unknown
	UpcallData   uint32
	UpcallBehind bool   // FrameData is behind a reference, which is at UpcallData or 8 bytes on
	UpcallAnchor uint32 // FrameData: the JavaFrameAnchor of the Java frames before
}

// InterpreterLayout is a frame of the interpreter: offsets from the frame pointer. The VM does
// not export all of them, so they are zero on architectures where they are not known.
type InterpreterLayout struct {
	Low, High uint64 // the interpreter's code
	Method    int32  // the Method*
	SenderSP  int32  // the caller's stack pointer
	Bytecode  int32  // pointer to the current bytecode, while the frame is not the topmost
}

// LoomLayout is about virtual threads (JDK 21+). All is 0 where there are none.
type LoomLayout struct {
	// ContEntry is in JavaThread: a pointer that is not null while a virtual thread runs on it. JDK
	// 21 does not export it.
	ContEntry    uint32
	HasContEntry bool
	// EnterReturn is the address of the word that says where the first frame of a virtual thread
	// returns to, once one has run. Above that frame are those of the carrier.
	EnterReturn uint64
	// ReturnBarrier is where the last frame on the stack returns to if its callers are still on the
	// heap.
	ReturnBarrier uint64

	Chunks    ChunkLayout
	HasChunks bool

	Mounted    MountedLayout
	HasMounted bool
}

// MountedLayout leads from a JavaThread to the virtual thread that runs on it.
type MountedLayout struct {
	// JavaThread: a handle, like ThreadObject, of the java.lang.Thread that Java code on it sees as
	// the current one
	Current uint32
	ID      uint32 // in a java.lang.Thread: its number, 64 bits, which no other thread of the VM ever has
}

// ChunkLayout is how virtual threads keep frames on the heap: from a ContinuationEntry, which is in
// the frame of enterSpecial on the carrier's stack, to the Continuation, to its newest StackChunk,
// and to the older ones.
type ChunkLayout struct {
	EntryContinuation uint32 // ContinuationEntry: pointer to the Continuation
	Tail              uint32 // Continuation: reference to the newest StackChunk
	Klass             uint64 // address of the class jdk.internal.vm.StackChunk

	// In a StackChunk, of which Stack is the first word of the frames.
	Parent, Continuation uint32 // references: the next older StackChunk; the Continuation that it belongs to
	// 32 bits: how many words there are; which of them is the innermost frame's stack pointer
	Size, SP        uint32
	Bottom          uint32 // 32 bits: which word the outermost frame ends at
	BottomIsArgSize bool   // Bottom is how many words from the end, those of the outermost frame's arguments
	PC              uint32 // 64 bits: where the innermost frame is
	Stack           uint32
}
