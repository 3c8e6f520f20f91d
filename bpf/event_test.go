package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// record is raw at an address that is shift bytes from being aligned, in an allocation that ends where it does.
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

// plainHeader and the others are the records field by field, without the padding that Go would put elsewhere.
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
	if s.End != EndRoot || s.Flags != SampleKernel || s.CPU != 6 || s.ClassEpoch != 7 || s.Attachment != 8 || string(s.Comm[:5]) != "java\x00" {
		t.Errorf("sample %+v", s)
	}
}

func FuzzDecodeSample(f *testing.F) {
	f.Add(encode(exampleSample, []uint64{1, 2, 3}), uint8(0))
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
		got := plainSample{headerOf(s.Header), want.UserFrames, want.KernelFrames, uint8(s.End), s.Flags, s.CPU, s.ClassEpoch, s.Attachment, [16]byte(s.Comm)}
		got.Pad = want.Pad
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
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
