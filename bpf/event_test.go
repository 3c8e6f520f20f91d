package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// record is raw at an address that is shift bytes from being aligned, in an allocation that ends
// where it does.
func record(raw []byte, shift uint8) []byte {
	off := int(shift % 8)
	b := make([]byte, off+len(raw))
	copy(b[off:], raw)
	return b[off:len(b):len(b)]
}

// encode lays values out as C does, which for these structs is one behind the other.
func encode(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.NativeEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// fields is the inverse of encode.
func fields(t *testing.T, raw []byte, values ...any) {
	t.Helper()
	r := bytes.NewReader(raw)
	for _, v := range values {
		if err := binary.Read(r, binary.NativeEndian, v); err != nil {
			t.Fatal(err)
		}
	}
}

// plainHeader and the others are the records field by field, without the padding that Go would put
// elsewhere.
type plainHeader struct {
	Time, Start uint64
	PID, TID    uint32
	Exec        uint32
	Kind        uint8
	Pad         [3]uint8
}

type plainSample struct {
	plainHeader
	UserFrames, KernelFrames uint16
	End, Flags               uint8
	CPU                      uint16
	ClassEpoch, Attachment   uint32
	Comm                     [16]byte
}

var exampleHeader = plainHeader{Time: 1, Start: 2, PID: 3, TID: 4, Exec: 5, Kind: EventSample}

var exampleSample = plainSample{
	plainHeader: exampleHeader, UserFrames: 2, KernelFrames: 1, End: uint8(EndRoot), Flags: SampleKernel, CPU: 6,
	ClassEpoch: 7, Attachment: 8, Comm: [16]byte{'j', 'a', 'v', 'a'},
}

func TestDecodeSample(t *testing.T) {
	frames := []uint64{0x1111, 0x2222, 0xffff_ffff_8100_0000}
	whole := encode(exampleSample, frames)
	for _, test := range []struct {
		name string
		raw  []byte
		ok   bool
	}{
		{"whole", whole, true},
		{"padded", append(slices.Clone(whole), 0, 0, 0), true},
		{"empty", nil, false},
		{"shorter than its fixed part", whole[:71], false},
		{"one frame short", whole[:len(whole)-8], false},
		{"one byte short", whole[:len(whole)-1], false},
		{"more frames than there can be", encode(plainSample{UserFrames: 1152}, make([]uint64, 1152)), false},
		{"frame counts that wrap in 16 bits", encode(plainSample{UserFrames: 0xffff, KernelFrames: 2}, frames), false},
		{"no frames", encode(plainSample{}), true},
	} {
		for shift := range uint8(8) {
			var s Sample
			err := DecodeSample(record(test.raw, shift), &s)
			if (err == nil) != test.ok || (err != nil && !errors.Is(err, ErrMalformed)) {
				t.Errorf("%s, shifted by %d: %v", test.name, shift, err)
			}
		}
	}

	var s Sample
	if err := DecodeSample(whole, &s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.User, []Frame{0x1111, 0x2222}) || !slices.Equal(s.Kernel, frames[2:]) {
		t.Errorf("frames %v and %#x", s.User, s.Kernel)
	}
	if s.Time != 1 || s.Start != 2 || s.Pid != 3 || s.Tid != 4 || s.Exec != 5 || s.Kind != EventSample {
		t.Errorf("header %+v", s.Header)
	}
	if s.End != EndRoot || s.Flags != SampleKernel || s.CPU != 6 || s.ClassEpoch != 7 || s.Attachment != 8 ||
		string(s.Comm[:5]) != "java\x00" {
		t.Errorf("sample %+v", s)
	}
}

// with is the example with flags, and with what they say is behind the frames.
func (s plainSample) with(flags uint8, tail any) []byte {
	s.Flags |= flags
	return encode(s, []uint64{0x1111, 0x2222, 0xffff_ffff_8100_0000}, tail)
}

// plainShared is struct shared_stack.
type plainShared struct{ Serial, Base, Frames, Own uint32 }

func TestDecodeSampleTail(t *testing.T) {
	many := plainSample{UserFrames: MaxUserFrames, KernelFrames: 127, Flags: SampleDepths}
	for _, test := range []struct {
		name   string
		raw    []byte
		depths []uint32
		shared *plainShared
		ok     bool
	}{
		{"without flags", exampleSample.with(0, []uint32{40, 16}), nil, nil, true},
		{"depths", exampleSample.with(SampleDepths, []uint32{7, 1, 40, 16}), []uint32{40, 16}, nil, true},
		{"depths with other flags", exampleSample.with(SampleDepths|SampleLink|SampleDrawn, []uint32{40, 0, 7}),
			[]uint32{40, 0}, nil, true},
		{"a tag alone", exampleSample.with(SampleDepths, []uint32{7, 1}), nil, nil, false},
		{"half a tag", exampleSample.with(SampleDepths, uint32(7)), nil, nil, false},
		{"a depth short", exampleSample.with(SampleDepths|SampleLink, uint32(40)), nil, nil, false},
		{"a byte short of depths", exampleSample.with(SampleDepths, [15]byte{}), nil, nil, false},
		{"depths of all frames", encode(many, make([]uint64, MaxUserFrames+127), uint64(9),
			make([]uint32, MaxUserFrames)), make([]uint32, MaxUserFrames), nil, true},
		{"depths of no frames", encode(plainSample{Flags: SampleDepths}, uint64(9)), []uint32{}, nil, true},
		{"shared", exampleSample.with(SampleShared, plainShared{9, 8, 7, 2}), nil, &plainShared{9, 8, 7, 2}, true},
		{"shared, of all", exampleSample.with(SampleShared, plainShared{1<<32 - 1, 0, MaxKeptFrames - 1, 0}), nil,
			&plainShared{1<<32 - 1, 0, MaxKeptFrames - 1, 0}, true},
		{"a byte short of shared", exampleSample.with(SampleShared, [15]byte{}), nil, nil, false},
		{"more of its own than it has", exampleSample.with(SampleShared, plainShared{9, 8, 7, 3}), nil, nil, false},
		{"more than all of its own", exampleSample.with(SampleShared, plainShared{9, 8, 7, 1 << 31}), nil, nil, false},
		{"more shared than there can be", exampleSample.with(SampleShared, plainShared{9, 8, MaxKeptFrames, 2}), nil,
			nil, false},
		{"both", exampleSample.with(SampleDepths|SampleShared, plainShared{9, 8, 7, 2}), nil, nil, false},
	} {
		for shift := range uint8(8) {
			var s Sample
			err := DecodeSample(record(test.raw, shift), &s)
			if (err == nil) != test.ok || err != nil && (!errors.Is(err, ErrMalformed) ||
				!reflect.DeepEqual(s, Sample{})) {
				t.Errorf("%s, shifted by %d: %v and %+v", test.name, shift, err, s)
			}
			if !slices.Equal(s.Depths, test.depths) || (s.Depths == nil) != (test.depths == nil) {
				t.Errorf("%s, shifted by %d: depths %v, want %v", test.name, shift, s.Depths, test.depths)
			}
			if (s.Shared == nil) != (test.shared == nil) || s.Shared != nil && sharedOf(s.Shared) != *test.shared {
				t.Errorf("%s, shifted by %d: shared %+v, want %+v", test.name, shift, s.Shared, test.shared)
			}
			if tagged := test.name == "depths"; tagged != (s.LinkTag == 1<<32|7) {
				t.Errorf("%s, shifted by %d: link tag %#x", test.name, shift, s.LinkTag)
			}
		}
	}
}

func sharedOf(s *SharedStack) plainShared {
	return plainShared{Serial: s.Serial, Base: s.Base, Frames: s.Frames, Own: s.Own}
}

func FuzzDecodeSample(f *testing.F) {
	f.Add(encode(exampleSample, []uint64{1, 2, 3}), uint8(0))
	f.Add(exampleSample.with(SampleDepths, []uint32{7, 1, 40, 16}), uint8(1))
	f.Add(exampleSample.with(SampleDepths|SampleLink, []uint32{40, 16}), uint8(1))
	f.Add(exampleSample.with(SampleDepths, []uint32{40}), uint8(0))
	f.Add(exampleSample.with(SampleShared, plainShared{9, 8, 7, 2}), uint8(0))
	f.Add(exampleSample.with(SampleShared, plainShared{9, 8, 7, 3}), uint8(5))
	f.Add(exampleSample.with(SampleDepths|SampleShared, plainShared{9, 8, 7, 1}), uint8(0))
	f.Add(encode(exampleSample, []uint64{1, 2}), uint8(0))
	f.Add(encode(plainSample{}), uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, shift uint8) {
		var s Sample
		if err := DecodeSample(record(raw, shift), &s); err != nil {
			if !reflect.DeepEqual(s, Sample{}) {
				t.Fatalf("error %v and a sample", err)
			}
			return
		}
		var want plainSample
		fields(t, raw, &want)
		frames := make([]uint64, int(want.UserFrames)+int(want.KernelFrames))
		fields(t, raw[binary.Size(want):], frames)
		if len(s.User) != int(want.UserFrames) || !slices.Equal(s.Kernel, frames[want.UserFrames:]) {
			t.Fatalf("%d and %d frames, want %d and %d", len(s.User), len(s.Kernel), want.UserFrames, want.KernelFrames)
		}
		for i, fr := range s.User {
			if uint64(fr) != frames[i] {
				t.Fatalf("frame %d is %#x, want %#x", i, uint64(fr), frames[i])
			}
			_ = fr.String()
		}
		got := plainSample{headerOf(s.Header), want.UserFrames, want.KernelFrames, uint8(s.End), s.Flags, s.CPU,
			s.ClassEpoch, s.Attachment, [16]byte(s.Comm)}
		got.Pad = want.Pad
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		tail := raw[binary.Size(want)+8*len(frames):]
		var depths []uint32
		var tag uint64
		if want.Flags&(SampleDepths|SampleLink) == SampleDepths {
			fields(t, tail, &tag)
			tail = tail[8:]
		}
		if s.LinkTag != tag {
			t.Fatalf("link tag %#x, want %#x", s.LinkTag, tag)
		}
		if want.Flags&SampleDepths != 0 {
			depths = make([]uint32, want.UserFrames)
			fields(t, tail, depths)
		}
		if !slices.Equal(s.Depths, depths) || (s.Depths == nil) != (depths == nil) {
			t.Fatalf("depths %v, want %v", s.Depths, depths)
		}
		if (s.Shared != nil) != (want.Flags&SampleShared != 0) || s.Shared != nil && depths != nil {
			t.Fatalf("flags %#x, shared %+v, depths %v", want.Flags, s.Shared, depths)
		}
		if s.Shared != nil {
			var shared plainShared
			fields(t, tail, &shared)
			if sharedOf(s.Shared) != shared || shared.Own > uint32(want.UserFrames) || shared.Frames >= MaxKeptFrames {
				t.Fatalf("of %d frames: %+v, want %+v", want.UserFrames, *s.Shared, shared)
			}
		}
		if Kind(raw) != want.Kind {
			t.Fatalf("kind %d, want %d", Kind(raw), want.Kind)
		}
		_ = s.End.String()
	})
}

func headerOf(h *Header) plainHeader {
	return plainHeader{Time: h.Time, Start: h.Start, PID: h.Pid, TID: h.Tid, Exec: h.Exec, Kind: h.Kind}
}

func TestKind(t *testing.T) {
	whole := encode(plainHeader{Kind: EventProcessExit})
	if k := Kind(whole); k != EventProcessExit {
		t.Errorf("kind %d, want %d", k, EventProcessExit)
	}
	if k := Kind(whole[:len(whole)-1]); k != 0 {
		t.Errorf("kind of a cut header is %d, want 0", k)
	}
}
