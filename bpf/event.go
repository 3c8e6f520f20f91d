package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// The generated structs under the names that the rest of the program uses. Layouts and units:
// event.h, sample.h, call.h, hotspot.h, cpython.h, operand.h.
type (
	Header         = ProfileEventHeader
	ProcessEvent   = ProfileProcessEvent
	HotspotProcess = ProfileHotspotProcess
	KnownThread    = ProfileKnownThread
	KnownThreadKey = ProfileKnownThreadKey
	CodeHeap       = ProfileCodeHeap
	Epochs         = ProfileEpochs
	LoadSite       = CodeMapLoadSite
	Operand        = CodeMapOperand
	Call           = ProfileCall
	NamedCall      = ProfileNamedCall
	SharedStack    = ContextSharedStack
	ShortHeader    = ProfileShortSample
	ChainRate      = ContextChainRate
	SeenMethod     = ProfileSeenMethod
)

// Kinds of events.
const (
	EventSample      = uint8(ProfileEventKindEVENT_SAMPLE)
	EventCodeLoad    = uint8(ProfileEventKindEVENT_CODE_LOAD)
	EventProcessExec = uint8(ProfileEventKindEVENT_PROCESS_EXEC)
	EventProcessExit = uint8(ProfileEventKindEVENT_PROCESS_EXIT)
	EventCall        = uint8(ProfileEventKindEVENT_CALL)
	EventNamedCall   = uint8(ProfileEventKindEVENT_NAMED_CALL)
	EventNewMethod   = uint8(ProfileEventKindEVENT_NEW_METHOD)
	EventObserved    = uint8(ProfileEventKindEVENT_OBSERVED)
	EventFullSample  = uint8(ProfileEventKindEVENT_FULL_SAMPLE)
	EventShortSample = uint8(ProfileEventKindEVENT_SHORT_SAMPLE)
	EventInvocation  = uint8(ProfileEventKindEVENT_INVOCATION)
	EventThreadEnd   = uint8(ProfileEventKindEVENT_THREAD_END)
	EventVMThreadEnd = uint8(ProfileEventKindEVENT_VM_THREAD_END)
)

// What sampled a call.
const (
	EnginePage     = uint8(ProfileCallEngineENGINE_PAGE)
	EngineListener = uint8(ProfileCallEngineENGINE_LISTENER)
	EngineUSDT     = uint8(ProfileCallEngineENGINE_USDT)
	EngineBranch   = uint8(ProfileCallEngineENGINE_BRANCH)
)

// Flags of a sample.
const (
	SampleKernel     = uint8(ProfileSampleFlagsSAMPLE_KERNEL)      // the tick came in kernel mode
	SampleJavaThread = uint8(ProfileSampleFlagsSAMPLE_JAVA_THREAD) // the thread belongs to an attached VM
	SampleJavaFrames = uint8(ProfileSampleFlagsSAMPLE_JAVA_FRAMES) // such a thread has Java on its stack
	SampleAttached   = uint8(ProfileSampleFlagsSAMPLE_ATTACHED)    // the VM was known when the tick came
	SampleDepths     = uint8(ProfileSampleFlagsSAMPLE_DEPTHS)      // Sample.Depths
	SampleLink       = uint8(ProfileSampleFlagsSAMPLE_LINK)        // the leaf and its caller suffice
	SampleDrawn      = uint8(ProfileSampleFlagsSAMPLE_DRAWN)       // walked although its link was known
	SampleShared     = uint8(ProfileSampleFlagsSAMPLE_SHARED)      // Sample.Shared
)

// A Mode is how much of a user stack samples have.
type Mode uint8

// Modes.
const (
	ModeWalk    = Mode(0)                                 // all of it
	ModePartial = Mode(ContextContextModeCONTEXT_PARTIAL) // what the thread's previous sample did not have
	ModeChain   = Mode(ContextContextModeCONTEXT_CHAIN)   // the leaf and its caller, where they are known
)

// LinkSteady is the bit of a link's tag which says that the link is not walked but by the luck of
// the draw.
const LinkSteady = uint64(ContextLinkTagsLINK_STEADY)

// Flags of a HotspotProcess.
const (
	HotspotCodeOffset      = uint32(ProfileHotspotFlagsHOTSPOT_CODE_OFFSET)
	HotspotFrameComplete16 = uint32(ProfileHotspotFlagsHOTSPOT_FRAME_COMPLETE_16)
	HotspotDeoptOffset     = uint32(ProfileHotspotFlagsHOTSPOT_DEOPT_OFFSET)
	HotspotUnloadEvents    = uint32(ProfileHotspotFlagsHOTSPOT_UNLOAD_EVENTS)
	HotspotTLS             = uint32(ProfileHotspotFlagsHOTSPOT_TLS)
	HotspotDeoptMH         = uint32(ProfileHotspotFlagsHOTSPOT_DEOPT_MH)
	HotspotThreads         = uint32(ProfileHotspotFlagsHOTSPOT_THREADS)
	HotspotChunks          = uint32(ProfileHotspotFlagsHOTSPOT_CHUNKS)
	HotspotChunkArgsize    = uint32(ProfileHotspotFlagsHOTSPOT_CHUNK_ARGSIZE)
	HotspotColoured        = uint32(ProfileHotspotFlagsHOTSPOT_COLOURED)
	HotspotUpcallBehind    = uint32(ProfileHotspotFlagsHOTSPOT_UPCALL_BEHIND)
)

// Kinds of operands of a probe.
const (
	OperandRegister = uint8(CodeMapOperandKindOPERAND_REGISTER)
	OperandMemory   = uint8(CodeMapOperandKindOPERAND_MEMORY)
	OperandConstant = uint8(CodeMapOperandKindOPERAND_CONSTANT)
)

// Bounds of the kernel side.
const (
	MaxUserFrames   = 1024  // frames of a stack: MAX_USER_FRAMES
	RootFrames      = 124   // outermost frames of a deeper stack, which are part of the former: ROOT_FRAMES
	MaxWalkedFrames = 5120  // frames of a stack whose outermost frames are looked for: MAX_WALKED_FRAMES
	MaxKeptFrames   = 2048  // frames of a stack that the next one may share: MAX_KEPT_FRAMES
	MaxAttached     = 1024  // VMs at once: MAX_ATTACHED
	MaxKnownThreads = 16384 // threads of all VMs: MAX_KNOWN_THREADS
	MaxProbeSites   = 64    // load probes of all builds of libjvm: MAX_PROBE_SITES
)

// ErrMalformed: a record that is not what its header says. The kernel side writes none.
var ErrMalformed = errors.New("malformed record")

// A Sample is one tick: who ran, and its stack. It points into the record it was decoded from.
type Sample struct {
	*Header
	End        WalkEnd
	Flags      uint8
	CPU        uint16
	ClassEpoch uint32       // times the VM had unloaded classes
	Attachment uint32       // HotspotProcess.Serial, 0 if none
	Comm       []byte       // name of the thread, up to 16 bytes, zero-padded
	User       []Frame      // innermost first
	LeftOut    int          // frames that are missing before the last RootFrames of User; 0 if none is
	Kernel     []uint64     // pcs, innermost first
	Depths     []uint32     // frames of User: bytes below the base of the stack, 0: unknown; nil without SampleDepths
	LinkTag    uint64       // tag of the first two frames, 0 if there is none: see Objects.SetSteady
	Shared     *SharedStack // nil without SampleShared
	Callers    uint64       // identifies all of User but the innermost frame, with process and epoch; 0 if nothing does
	Root       uint64       // tag of no frame, with which those of the stack's suffixes begin; EventFullSample only
}

// A ShortSample is a Sample that refers to an earlier one for its outermost user frames. It points
// into the record it was decoded from.
type ShortSample struct {
	*ShortHeader
	User   []Frame  // own frames, innermost first: those before the frames that are known
	Kernel []uint64 // pcs, innermost first
}

// A CodeLoad announces a compilation, as the VM described it. It points into the record it was
// decoded from.
type CodeLoad struct {
	*Header
	Begin                  uint64 // first instruction
	Size                   uint32 // bytes
	CompileID              uint32 // 0 if the VM was not attached yet
	Class, Name, Signature []byte // in the VM's form, possibly cut
}

// Kind of a record, 0 if it has no whole header.
func Kind(raw []byte) uint8 {
	if len(raw) < int(unsafe.Sizeof(Header{})) {
		return 0
	}
	return raw[unsafe.Offsetof(Header{}.Kind)]
}

// PID returns the process that a record is of; ok is false if it has none.
func PID(raw []byte) (pid int, ok bool) {
	if len(raw) < int(unsafe.Sizeof(Header{})) {
		return 0, false
	}
	return int(binary.NativeEndian.Uint32(raw[unsafe.Offsetof(Header{}.Pid):])), true
}

// DecodeSample decodes raw into s without copying.
func DecodeSample(raw []byte, s *Sample) error {
	const fixed = unsafe.Offsetof(ProfileSample{}.Frames)
	if uintptr(len(raw)) < fixed {
		return fmt.Errorf("sample of %d bytes: %w", len(raw), ErrMalformed)
	}
	// A record ends with the frames that it has: it must not be looked at as a whole ProfileSample.
	raw = aligned(raw)
	u16 := func(offset uintptr) uint16 { return binary.NativeEndian.Uint16(raw[offset:]) }
	u32 := func(offset uintptr) uint32 { return binary.NativeEndian.Uint32(raw[offset:]) }
	n, k := int(u16(unsafe.Offsetof(ProfileSample{}.UserFrames))),
		int(u16(unsafe.Offsetof(ProfileSample{}.KernelFrames)))
	if n+k > len(ProfileSample{}.Frames) || len(raw) < int(fixed)+8*(n+k) {
		return fmt.Errorf("sample of %d bytes with %d+%d frames: %w", len(raw), n, k, ErrMalformed)
	}
	frames, tail := raw[fixed:], raw[int(fixed)+8*(n+k):]
	flags := raw[unsafe.Offsetof(ProfileSample{}.Flags)]
	var depths []uint32
	var tag uint64
	var shared *SharedStack
	withDepths, withShared := flags&SampleDepths != 0, flags&SampleShared != 0
	withTag := withDepths && flags&SampleLink == 0 && len(tail) >= 8
	if withTag {
		tag, tail = binary.NativeEndian.Uint64(tail), tail[8:]
	}
	switch {
	case withDepths && withShared, withDepths && !withTag && flags&SampleLink == 0, withDepths && len(tail) < 4*n,
		withShared && uintptr(len(tail)) < unsafe.Sizeof(SharedStack{}):
		return fmt.Errorf("sample with flags %#x and %d bytes behind %d frames: %w", flags, len(tail), n+k,
			ErrMalformed)
	case withDepths:
		depths = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(tail))), n)
	case withShared:
		shared = (*SharedStack)(unsafe.Pointer(unsafe.SliceData(tail)))
		if shared.Own > uint32(n) || shared.Frames >= MaxKeptFrames {
			return fmt.Errorf("sample of %d frames, %d of its own and %d shared: %w", n, shared.Own, shared.Frames,
				ErrMalformed)
		}
	}
	var root uint64
	if Kind(raw) == EventFullSample {
		if len(tail) != 8 || withDepths || withShared {
			return fmt.Errorf("full sample with flags %#x and %d bytes behind %d frames: %w", flags, len(tail), n+k,
				ErrMalformed)
		}
		root = binary.NativeEndian.Uint64(tail)
	}
	comm := raw[unsafe.Offsetof(ProfileSample{}.Comm):]
	*s = Sample{
		Header:     (*Header)(unsafe.Pointer(unsafe.SliceData(raw))),
		End:        WalkEnd(raw[unsafe.Offsetof(ProfileSample{}.End)]),
		Flags:      flags,
		CPU:        u16(unsafe.Offsetof(ProfileSample{}.Cpu)),
		ClassEpoch: u32(unsafe.Offsetof(ProfileSample{}.ClassEpoch)),
		Attachment: u32(unsafe.Offsetof(ProfileSample{}.Attachment)),
		Comm:       comm[:len(ProfileSample{}.Comm)],
		User:       unsafe.Slice((*Frame)(unsafe.Pointer(unsafe.SliceData(frames))), n),
		Kernel:     unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(frames[8*n:]))), k),
		Depths:     depths,
		LinkTag:    tag,
		Shared:     shared,
		Root:       root,
	}
	if s.Header.LeftOut > 0 && n == MaxUserFrames {
		s.LeftOut, s.User = int(s.Header.LeftOut), unrolled(s.User, int(s.Header.LeftOut))
	}
	return nil
}

// SuffixStep is how many frames a suffix of a stack has more than the one before: SUFFIX_STEP.
const SuffixStep = 4

// SuffixTag returns the tag of a suffix, given that of the one before and the frames that this one
// has in addition, outermost first. If there are fewer, the rest is 0.
func SuffixTag(before uint64, own [SuffixStep]Frame) uint64 {
	v := uint64(own[0])*0x9e3779b97f4a7c15 + uint64(own[1])*0xc2b2ae3d27d4eb4f + uint64(own[2])*0x165667b19e3779f9 +
		uint64(own[3])*0xd6e8feb86659fd93
	tag := (before ^ v) * 0x9e3779b97f4a7c15
	return tag ^ tag>>29
}

// DecodeShort decodes raw into s without copying.
func DecodeShort(raw []byte, s *ShortSample) error {
	const fixed = unsafe.Sizeof(ShortHeader{})
	if uintptr(len(raw)) < fixed {
		return fmt.Errorf("short sample of %d bytes: %w", len(raw), ErrMalformed)
	}
	raw = aligned(raw)
	h := (*ShortHeader)(unsafe.Pointer(unsafe.SliceData(raw)))
	n, k, frames := int(h.UserFrames), int(h.KernelFrames), raw[fixed:]
	if n > MaxUserFrames || n+k > len(ProfileSample{}.Frames) || len(frames) != 8*(n+k) {
		return fmt.Errorf("short sample of %d bytes with %d+%d frames: %w", len(raw), n, k, ErrMalformed)
	}
	*s = ShortSample{
		ShortHeader: h,
		User:        unsafe.Slice((*Frame)(unsafe.Pointer(unsafe.SliceData(frames))), n),
		Kernel:      unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(frames[8*n:]))), k),
	}
	return nil
}

// unrolled returns a copy in which the outermost frames are in their order: they went round in
// their place.
func unrolled(user []Frame, leftOut int) []Frame {
	ring := user[MaxUserFrames-RootFrames:]
	first := leftOut % RootFrames // the innermost one in it
	return slices.Concat(user[:MaxUserFrames-RootFrames], ring[first:], ring[:first])
}

// DecodeCodeLoad decodes raw into l without copying.
func DecodeCodeLoad(raw []byte, l *CodeLoad) error {
	if uintptr(len(raw)) < unsafe.Sizeof(CodeMapCodeLoad{}) {
		return fmt.Errorf("code load of %d bytes: %w", len(raw), ErrMalformed)
	}
	p := (*CodeMapCodeLoad)(unsafe.Pointer(unsafe.SliceData(aligned(raw))))
	if int(p.ClassLen) > len(p.ClassName) || int(p.NameLen) > len(p.MethodName) ||
		int(p.SignatureLen) > len(p.Signature) {
		return fmt.Errorf("code load with names of %d, %d, %d bytes: %w", p.ClassLen, p.NameLen, p.SignatureLen,
			ErrMalformed)
	}
	*l = CodeLoad{
		Header: (*Header)(unsafe.Pointer(&p.Header)), Begin: p.Begin, Size: p.Size, CompileID: p.CompileId,
		Class: p.ClassName[:p.ClassLen], Name: p.MethodName[:p.NameLen], Signature: p.Signature[:p.SignatureLen],
	}
	return nil
}

// A MethodSeen reports the first call of a method. It points into the record it was decoded
// from.
type MethodSeen struct {
	*Header
	Method     uint64 // address of the VM's structure
	ClassEpoch uint32 // times the VM had unloaded classes
	Attachment uint32 // HotspotProcess.Serial
}

// DecodeMethodSeen decodes raw without copying.
func DecodeMethodSeen(raw []byte) (MethodSeen, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(NewMethod{}) {
		return MethodSeen{}, fmt.Errorf("new method of %d bytes: %w", len(raw), ErrMalformed)
	}
	m := (*NewMethod)(unsafe.Pointer(unsafe.SliceData(aligned(raw))))
	return MethodSeen{Header: (*Header)(unsafe.Pointer(&m.Header)), Method: m.Method, ClassEpoch: m.ClassEpoch,
		Attachment: m.Attachment}, nil
}

// DecodeProcess decodes an exec or exit event without copying.
func DecodeProcess(raw []byte) (*ProcessEvent, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(ProcessEvent{}) {
		return nil, fmt.Errorf("process event of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*ProcessEvent)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}

// DecodeThreadEnd decodes the end of a thread without copying.
func DecodeThreadEnd(raw []byte) (*ThreadEnd, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(ThreadEnd{}) {
		return nil, fmt.Errorf("end of a thread of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*ThreadEnd)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}

// DecodeCall decodes a sampled call without copying.
func DecodeCall(raw []byte) (*Call, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(Call{}) {
		return nil, fmt.Errorf("call of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*Call)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}

// DecodeNamedCall decodes a sampled call whose names came with it, without copying.
func DecodeNamedCall(raw []byte) (*NamedCall, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(NamedCall{}) {
		return nil, fmt.Errorf("named call of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*NamedCall)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}

// aligned returns raw, or a copy of it whose words are aligned. The ring's records are.
func aligned(raw []byte) []byte {
	if uintptr(unsafe.Pointer(unsafe.SliceData(raw)))%8 == 0 {
		return raw
	}
	words := make([]uint64, (len(raw)+7)/8)
	c := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(raw))
	copy(c, raw)
	return c
}

// The tag of records of CPython, and the code offset of the FrameStub that stands for a wait for the
// global interpreter lock.
const (
	processCPython = 1 << 31
	CPythonGIL     = 1
)

// Sizes of what a walk reads at most of a frame of CPython and of a code object, in bytes.
const (
	CPythonFrameBytes = 8 * 16
	CPythonCodeBytes  = 8 * 32
)

// A CPythonProcess is what the walker must know of one interpreter of CPython.
type CPythonProcess = ProfileCpythonProcess

// How an interpreter has its frames (enum cpython_flags).
const (
	CPythonCFrame    = uint32(ProfileCpythonFlagsCPYTHON_CFRAME)
	CPythonAddress   = uint32(ProfileCpythonFlagsCPYTHON_ADDRESS)
	CPythonBytes     = uint32(ProfileCpythonFlagsCPYTHON_BYTES)
	CPythonEntryEach = uint32(ProfileCpythonFlagsCPYTHON_ENTRY_EACH)
	CPythonEntryFlag = uint32(ProfileCpythonFlagsCPYTHON_ENTRY_FLAG)
	CPythonEntryShim = uint32(ProfileCpythonFlagsCPYTHON_ENTRY_SHIM)
)

// CPythonRecord is the record of an interpreter in the map of processes. That map has one form of
// values, which begins with who the process is; the rest of it is another one for each kind of VM.
func CPythonRecord(p *CPythonProcess) *HotspotProcess {
	record := new(HotspotProcess)
	*(*CPythonProcess)(unsafe.Pointer(record)) = *p
	record.Flags |= processCPython
	return record
}
