package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// The generated structs under the names that the rest of the program uses. Layouts and units: event.h.
type (
	Header         = ProfileEventHeader
	ProcessEvent   = ProfileProcessEvent
	HotspotProcess = ProfileHotspotProcess
	CodeHeap       = ProfileCodeHeap
	Epochs         = ProfileEpochs
	LoadSite       = CodeMapLoadSite
	Operand        = CodeMapOperand
)

// Kinds of events.
const (
	EventSample      = uint8(ProfileEventKindEVENT_SAMPLE)
	EventCodeLoad    = uint8(ProfileEventKindEVENT_CODE_LOAD)
	EventProcessExec = uint8(ProfileEventKindEVENT_PROCESS_EXEC)
	EventProcessExit = uint8(ProfileEventKindEVENT_PROCESS_EXIT)
)

// Flags of a sample.
const (
	SampleKernel     = uint8(ProfileSampleFlagsSAMPLE_KERNEL)      // the tick came in kernel mode
	SampleJavaThread = uint8(ProfileSampleFlagsSAMPLE_JAVA_THREAD) // of an attached VM
	SampleJavaFrames = uint8(ProfileSampleFlagsSAMPLE_JAVA_FRAMES) // and Java is on its stack
	SampleAttached   = uint8(ProfileSampleFlagsSAMPLE_ATTACHED)    // the VM was known when the tick came
)

// Flags of a HotspotProcess.
const (
	HotspotCodeOffset      = uint32(ProfileHotspotFlagsHOTSPOT_CODE_OFFSET)
	HotspotFrameComplete16 = uint32(ProfileHotspotFlagsHOTSPOT_FRAME_COMPLETE_16)
	HotspotDeoptOffset     = uint32(ProfileHotspotFlagsHOTSPOT_DEOPT_OFFSET)
	HotspotUnloadEvents    = uint32(ProfileHotspotFlagsHOTSPOT_UNLOAD_EVENTS)
	HotspotTLS             = uint32(ProfileHotspotFlagsHOTSPOT_TLS)
	HotspotDeoptMH         = uint32(ProfileHotspotFlagsHOTSPOT_DEOPT_MH)
)

// Kinds of operands of a probe.
const (
	OperandRegister = uint8(CodeMapOperandKindOPERAND_REGISTER)
	OperandMemory   = uint8(CodeMapOperandKindOPERAND_MEMORY)
	OperandConstant = uint8(CodeMapOperandKindOPERAND_CONSTANT)
)

// Bounds of the kernel side.
const (
	MaxAttached   = 1024 // VMs at once: MAX_ATTACHED
	MaxProbeSites = 64   // load probes of all builds of libjvm: MAX_PROBE_SITES
)

// ErrMalformed: a record that is not what its header says. The kernel side writes none.
var ErrMalformed = errors.New("malformed record")

// A Sample is one tick: who ran, and its stack. It points into the record it was decoded from.
type Sample struct {
	*Header
	End        WalkEnd
	Flags      uint8
	CPU        uint16
	ClassEpoch uint32   // times the VM had unloaded classes
	Attachment uint32   // HotspotProcess.Serial, 0 if none
	Comm       []byte   // of the thread, up to 16 bytes, zero-padded
	User       []Frame  // innermost first
	Kernel     []uint64 // pcs, innermost first
}

// A CodeLoad announces a compilation, as the VM described it. It points into the record it was decoded from.
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
	n, k := int(u16(unsafe.Offsetof(ProfileSample{}.UserFrames))), int(u16(unsafe.Offsetof(ProfileSample{}.KernelFrames)))
	if n+k > len(ProfileSample{}.Frames) || len(raw) < int(fixed)+8*(n+k) {
		return fmt.Errorf("sample of %d bytes with %d+%d frames: %w", len(raw), n, k, ErrMalformed)
	}
	frames := raw[fixed:]
	comm := raw[unsafe.Offsetof(ProfileSample{}.Comm):]
	*s = Sample{
		Header:     (*Header)(unsafe.Pointer(unsafe.SliceData(raw))),
		End:        WalkEnd(raw[unsafe.Offsetof(ProfileSample{}.End)]),
		Flags:      raw[unsafe.Offsetof(ProfileSample{}.Flags)],
		CPU:        u16(unsafe.Offsetof(ProfileSample{}.Cpu)),
		ClassEpoch: u32(unsafe.Offsetof(ProfileSample{}.ClassEpoch)),
		Attachment: u32(unsafe.Offsetof(ProfileSample{}.Attachment)),
		Comm:       comm[:len(ProfileSample{}.Comm)],
		User:       unsafe.Slice((*Frame)(unsafe.Pointer(unsafe.SliceData(frames))), n),
		Kernel:     unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(frames[8*n:]))), k),
	}
	return nil
}

// DecodeCodeLoad decodes raw into l without copying.
func DecodeCodeLoad(raw []byte, l *CodeLoad) error {
	if uintptr(len(raw)) < unsafe.Sizeof(CodeMapCodeLoad{}) {
		return fmt.Errorf("code load of %d bytes: %w", len(raw), ErrMalformed)
	}
	p := (*CodeMapCodeLoad)(unsafe.Pointer(unsafe.SliceData(aligned(raw))))
	if int(p.ClassLen) > len(p.ClassName) || int(p.NameLen) > len(p.MethodName) || int(p.SignatureLen) > len(p.Signature) {
		return fmt.Errorf("code load with names of %d, %d, %d bytes: %w", p.ClassLen, p.NameLen, p.SignatureLen, ErrMalformed)
	}
	*l = CodeLoad{
		Header: (*Header)(unsafe.Pointer(&p.Header)), Begin: p.Begin, Size: p.Size, CompileID: p.CompileId,
		Class: p.ClassName[:p.ClassLen], Name: p.MethodName[:p.NameLen], Signature: p.Signature[:p.SignatureLen],
	}
	return nil
}

// DecodeProcess decodes an exec or exit event without copying.
func DecodeProcess(raw []byte) (*ProcessEvent, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(ProcessEvent{}) {
		return nil, fmt.Errorf("process event of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*ProcessEvent)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
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
