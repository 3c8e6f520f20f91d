package bpf

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// plainObservation is struct observation field by field.
type plainObservation struct {
	What, Place, Flags, Count uint8
	TextLen                   uint16
	Failed, Cut               uint8
	Probe, Every, Stops, Pad2 uint32
	Object                    uint64
	Values                    [8]uint64
}

func exampleObserved(change func(*plainSample, *plainObservation)) []byte {
	s := exampleSample
	s.Kind, s.UserFrames, s.KernelFrames, s.Flags = EventObserved, 2, 1, SampleAttached
	o := plainObservation{
		What: ObservedAllocation, Place: PlaceOld, Flags: SeenOutside, Count: 2, TextLen: 5, Failed: 1, Cut: 2,
		Probe: 9, Every: 97, Stops: 4, Object: 0x7_0000_0010, Values: [8]uint64{24, 1 << 18},
	}
	if change != nil {
		change(&s, &o)
	}
	return encode(s, make([]uint64, int(s.UserFrames)+int(s.KernelFrames)), o, []byte("Class\x00\x00\x00"))
}

func TestDecodeObservation(t *testing.T) {
	whole := exampleObserved(nil)
	for _, test := range []struct {
		name string
		raw  []byte
		ok   bool
	}{
		{"whole", whole, true},
		{"without padding", whole[:len(whole)-3], true},
		{"padded further", append(slices.Clone(whole), 0, 0, 0, 0), true},
		{"one byte of text short", whole[:len(whole)-4], false},
		{"no text", whole[:len(whole)-8], false},
		{"text of none", exampleObserved(func(_ *plainSample, o *plainObservation) { o.TextLen = 0 })[:len(whole)-8],
			true},
		{"text longer than any", exampleObserved(func(_ *plainSample, o *plainObservation) { o.TextLen = 1<<16 - 1 }),
			false},
		{"text as long as its padding", exampleObserved(func(_ *plainSample, o *plainObservation) { o.TextLen = 8 }),
			true},
		{"one byte too long", exampleObserved(func(_ *plainSample, o *plainObservation) { o.TextLen = 9 }), false},
		{"as many values as there can be", exampleObserved(func(_ *plainSample, o *plainObservation) { o.Count = 8 }),
			true},
		{"one value too many", exampleObserved(func(_ *plainSample, o *plainObservation) { o.Count = 9 }), false},
		{"no observation", whole[:len(whole)-8-96], false},
		{"one byte of it short", whole[:len(whole)-9], false},
		{"no frames", exampleObserved(func(s *plainSample, _ *plainObservation) {
			s.UserFrames, s.KernelFrames = 0,
				0
		}), true},
		{"more frames than there are", exampleObserved(nil)[:80], false},
		{"frames that reach over the observation", func() []byte {
			raw := slices.Clone(whole)
			raw[32]++ // sample.user_frames: one more than there are
			return raw
		}(), false},
		{"with depths", exampleObserved(func(s *plainSample,
			_ *plainObservation) {
			s.Flags = SampleDepths | SampleLink
		}), false},
		{"with a shared stack", exampleObserved(func(s *plainSample, _ *plainObservation) { s.Flags = SampleShared }),
			false},
		{"empty", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for shift := range uint8(8) {
				var o Observation
				err := DecodeObservation(record(test.raw, shift), &o)
				if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrMalformed) {
					t.Fatalf("shift %d: %v, want ok: %v", shift, err, test.ok)
				}
			}
		})
	}
	var o Observation
	if err := DecodeObservation(whole, &o); err != nil {
		t.Fatal(err)
	}
	if string(o.Text) != "Class" || len(o.User) != 2 || len(o.Kernel) != 1 || o.Pid != exampleSample.PID ||
		o.Flags != SampleAttached {
		t.Errorf("%q of process %d with %d and %d frames, flags %#x", o.Text, o.Pid, len(o.User), len(o.Kernel),
			o.Flags)
	}
	want := ProbeObservation{
		What: ObservedAllocation, Place: PlaceOld, Flags: SeenOutside, Count: 2, TextLen: 5, Failed: 1, Cut: 2,
		Probe: 9, Every: 97, Stops: 4, Object: 0x7_0000_0010, Values: [8]uint64{24, 1 << 18},
	}
	if *o.Seen != want {
		t.Errorf("saw %+v, want %+v", *o.Seen, want)
	}
}

func FuzzDecodeObservation(f *testing.F) {
	f.Add(exampleObserved(nil), uint8(0))
	f.Add(exampleObserved(func(s *plainSample, o *plainObservation) { s.UserFrames, o.TextLen, o.Count = 0, 8, 8 }),
		uint8(3))
	f.Add(exampleObserved(func(s *plainSample, _ *plainObservation) { s.Flags = SampleDepths | SampleShared }),
		uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, shift uint8) {
		var o Observation
		if err := DecodeObservation(record(raw, shift), &o); err != nil {
			if o.Seen != nil || o.Text != nil {
				t.Fatalf("error %v and an observation", err)
			}
			return
		}
		if len(o.Text) > MaxObservedText && len(raw) < MaxObservedText {
			t.Fatalf("%d bytes of text in a record of %d", len(o.Text), len(raw))
		}
		if int(o.Seen.TextLen) != len(o.Text) || int(o.Seen.Count) > MaxObservedValues {
			t.Fatalf("%d bytes of text, %d values: %+v", len(o.Text), o.Seen.Count, o.Seen)
		}
		for i := range MaxObservedValues {
			if text, cut := o.ValueText(i); o.Failed(i) && (text != nil || cut) {
				t.Fatalf("value %d failed and is %q", i, text)
			}
		}
		var again Observation
		if err := DecodeObservation(record(raw, shift+1), &again); err != nil || !reflect.DeepEqual(o, again) {
			t.Fatalf("elsewhere it is %+v, %v; here %+v", again, err, o)
		}
	})
}
