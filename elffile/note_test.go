package elffile

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestNextNote(t *testing.T) {
	data := slices.Concat(elftest.Note("abc", 7, []byte{1}), elftest.Note("defg", 8, nil),
		elftest.Note("", 9, []byte{1, 2, 3, 4}))
	var got []note
	for len(data) > 0 {
		n, rest, err := nextNote(data)
		if err != nil {
			t.Fatal(err)
		}
		got, data = append(got, n), rest
	}
	want := []note{{[]byte("abc"), 7, []byte{1}}, {[]byte("defg"), 8, nil}, {nil, 9, []byte{1, 2, 3, 4}}}
	if !slices.EqualFunc(got, want, func(a, b note) bool {
		return bytes.Equal(a.owner, b.owner) && a.kind == b.kind && bytes.Equal(a.desc, b.desc)
	}) {
		t.Errorf("notes %v, want %v", got, want)
	}
}

func TestNextNoteRefuses(t *testing.T) {
	for name, data := range map[string][]byte{
		"short header":     {4, 0, 0, 0, 0, 0, 0, 0},
		"owner too long":   {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 'x', 0, 0, 0},
		"desc too long":    {0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4},
		"sum past 32 bits": {0xfc, 0xff, 0xff, 0xff, 8, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4},
	} {
		if n, _, err := nextNote(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v, want %v", name, n, err, ErrMalformed)
		}
	}
}

// FuzzNotes reads arbitrary bytes as probe notes of the fixture.
func FuzzNotes(f *testing.F) {
	f.Add(elftest.Probe("vm", "start", "8@%rdi -4@-8(%rbp)", 0x1010, 0x3000, 0x2110), uint64(0x3000))
	f.Add(elftest.Note("stapsdt", noteStap, []byte{1, 2, 3}), uint64(0))
	f.Add(elftest.Note("stapsdt", noteStap, make([]byte, 24)), uint64(1))
	f.Add([]byte{8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 's', 't', 'a', 'p', 's', 'd', 't', 0}, uint64(0))
	file := open(f, fixture())
	f.Fuzz(func(t *testing.T, data []byte, base uint64) {
		probes, err := file.parseProbes(data, base)
		if err != nil && probes != nil {
			t.Errorf("probes and error %v", err)
		}
		if len(probes) > len(data)/12 {
			t.Errorf("%d probes from %d bytes", len(probes), len(data))
		}
		for _, p := range probes {
			if at, ok := file.AddressToOffset(p.Location); !ok || at != p.Offset || len(p.Args) > maxOperands {
				t.Errorf("probe %+v", p)
			}
		}
	})
}
