package foldtest

import (
	"encoding/binary"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An Identity is a process as the kernel side knows it.
type Identity struct {
	PID   uint32
	Start uint64
	Exec  uint32
}

// Header returns the header of a record of the process, at 1 ns.
func (id Identity) Header(kind uint8) bpf.Header {
	return bpf.Header{Time: 1, Pid: id.PID, Tid: id.PID, Start: id.Start, Exec: id.Exec, Kind: kind}
}

// Sample returns the kernel side's record of a sample with these user frames.
func Sample(id Identity, frames ...bpf.Frame) []byte {
	s := bpf.ProfileSample{Header: id.Header(bpf.EventSample), UserFrames: uint16(len(frames)), End: uint8(bpf.EndRoot)}
	for i, f := range frames {
		s.Frames[i] = uint64(f)
	}
	return bytesOf(&s, unsafe.Offsetof(s.Frames)+8*uintptr(len(frames)))
}

// Full returns the kernel side's record of a sample with these user frames that others may refer
// to, by the tag of its callers: Short.
func Full(id Identity, frames ...bpf.Frame) (raw []byte, callers uint64) {
	raw = Sample(id, frames...)
	raw[unsafe.Offsetof(bpf.Header{}.Kind)] = bpf.EventFullSample
	root := id.Start<<32 | uint64(id.PID)
	callers = root
	for at := len(frames) - 1; at > 0; {
		var own [bpf.SuffixStep]bpf.Frame
		for i := 0; i < len(own) && at > 0; i++ {
			own[i] = frames[at]
			at--
		}
		callers = bpf.SuffixTag(callers, own)
	}
	return binary.NativeEndian.AppendUint64(raw, root), callers
}

// Short returns the kernel side's record of a sample with these frames and, after them, those that
// have the tag.
func Short(id Identity, tag uint64, frames ...bpf.Frame) []byte {
	h := bpf.ShortHeader{Header: id.Header(bpf.EventShortSample), UserFrames: uint16(len(frames)),
		End: uint8(bpf.EndRoot), Base: tag}
	raw := bytesOf(&h, unsafe.Sizeof(h))
	for _, f := range frames {
		raw = binary.NativeEndian.AppendUint64(raw, uint64(f))
	}
	return raw
}

// Process returns the kernel side's record when a process begins or ends.
func Process(kind uint8, id Identity) []byte {
	e := bpf.ProcessEvent{Header: id.Header(kind)}
	return bytesOf(&e, unsafe.Sizeof(e))
}

// Call returns the kernel side's record of a call between two code versions.
func Call(id Identity, engine uint8, attachment uint32, caller, callee bpf.Frame) []byte {
	c := bpf.Call{Header: id.Header(bpf.EventCall), Engine: engine, Attachment: attachment, Caller: uint64(caller),
		Callee: uint64(callee)}
	return bytesOf(&c, unsafe.Sizeof(c))
}

// Observation returns the kernel side's record of a probe's hit, in the context of a record.
func Observation(r Record, seen bpf.ProbeObservation, text string) []byte {
	raw := r.Encode()
	raw[unsafe.Offsetof(bpf.Header{}.Kind)] = bpf.EventObserved
	seen.TextLen = uint16(len(text))
	raw = append(raw, bytesOf(&seen, unsafe.Sizeof(seen))...)
	raw = append(raw, text...)
	return append(raw, make([]byte, -len(text)&7)...)
}

// bytesOf returns the first size bytes of a value.
func bytesOf[T any](v *T, size uintptr) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(v)), size)...)
}

// A Record is a sample as the kernel side writes it. Its user stack has the format of Frames.
type Record struct {
	Identity
	TID        uint32 // 0: PID
	Attachment uint32
	ClassEpoch uint32
	Flags      uint8
	End        bpf.WalkEnd // EndNone: the root
	Kernel     []uint64
	User       string
	Shared     *bpf.SharedStack
	LinkTag    uint64
}

// Encode lays the record out as the kernel side does.
func (r Record) Encode() []byte {
	user, depths := Frames(r.User)
	if r.TID == 0 {
		r.TID = r.PID
	}
	if r.End == bpf.EndNone && len(user) > 0 {
		r.End = bpf.EndRoot
	}
	s := bpf.ProfileSample{
		Header: r.Header(bpf.EventSample), UserFrames: uint16(len(user)), KernelFrames: uint16(len(r.Kernel)),
		End:   uint8(r.End),
		Flags: r.Flags, Attachment: r.Attachment, ClassEpoch: r.ClassEpoch,
	}
	s.Header.Tid = r.TID
	if r.Shared != nil {
		s.Flags |= bpf.SampleShared
	}
	copy(s.Comm[:], []uint8("thread"))
	for i, f := range user {
		s.Frames[i] = uint64(f)
	}
	copy(s.Frames[len(user):], r.Kernel)
	size := unsafe.Offsetof(s.Frames) + 8*uintptr(len(user)+len(r.Kernel))
	raw := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&s)), size)...)
	order := binary.NativeEndian
	if s.Flags&bpf.SampleDepths != 0 {
		if s.Flags&bpf.SampleLink == 0 {
			raw = order.AppendUint64(raw, r.LinkTag)
		}
		for _, d := range depths {
			raw = order.AppendUint32(raw, d)
		}
		raw = append(raw, make([]byte, len(raw)&4)...)
	}
	if h := r.Shared; h != nil {
		for _, v := range []uint32{h.Serial, h.Base, h.Frames, h.Own} {
			raw = order.AppendUint32(raw, v)
		}
	}
	return raw
}
