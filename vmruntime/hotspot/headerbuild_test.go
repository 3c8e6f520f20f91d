package hotspot

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// TestHeaderForms has what flags and exports of each JDK leave.
func TestHeaderForms(t *testing.T) {
	const pointers, compact = "UseCompressedClassPointers", "UseCompactObjectHeaders"
	exported := objectSchema{
		narrowKlass:  vmstructs.Field{Offset: 8, Width: 4, Known: true},
		klass:        vmstructs.Field{Offset: 8, Width: 8, Known: true},
		markKlassBit: 42,
	}
	without := func(change func(*objectSchema)) objectSchema {
		s := exported
		change(&s)
		return s
	}
	narrow := headerForm{klass: 8, narrow: true, arrayLength: 12}
	inMark := headerForm{inMark: true, bit: 42, arrayLength: 8}
	wide := headerForm{klass: 8, arrayLength: 16}
	for name, test := range map[string]struct {
		schema objectSchema
		flags  vmstructs.FlagValues
		want   []headerForm
	}{
		"17":                     {exported, vmstructs.FlagValues{pointers: 1}, []headerForm{narrow}},
		"17, wide":               {exported, vmstructs.FlagValues{pointers: 0}, []headerForm{wide}},
		"25":                     {exported, vmstructs.FlagValues{pointers: 1, compact: 0}, []headerForm{narrow}},
		"25, compact":            {exported, vmstructs.FlagValues{pointers: 1, compact: 1}, []headerForm{inMark}},
		"28":                     {exported, vmstructs.FlagValues{compact: 0}, []headerForm{narrow}},
		"28, compact":            {exported, vmstructs.FlagValues{compact: 1}, []headerForm{inMark}},
		"28, 0 in unknown bytes": {exported, vmstructs.FlagValues{compact: 0x100}, []headerForm{narrow}},
		"no flags":               {exported, nil, []headerForm{narrow, inMark}},
		"nothing exported": {without(func(s *objectSchema) {
			s.narrowKlass, s.klass, s.markKlassBit = vmstructs.Field{}, vmstructs.Field{}, 0
		}),
			nil, []headerForm{narrow, inMark}},
		"wide, not exported": {without(func(s *objectSchema) { s.klass = vmstructs.Field{} }),
			vmstructs.FlagValues{pointers: 0}, nil},
		"moved": {without(func(s *objectSchema) { s.narrowKlass.Offset, s.markKlassBit = 12, 40 }), nil,
			[]headerForm{{klass: 12, narrow: true, arrayLength: 16}, {inMark: true, bit: 40, arrayLength: 8}}},
	} {
		got := test.schema.headerForms(test.flags)
		for i := range got {
			got[i].name = ""
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// rename makes a string of the VM's another one, which is not longer.
func rename(t *testing.T, r *recording, text, to string) {
	t.Helper()
	found := 0
	for _, piece := range r.Pieces {
		for at := 0; ; {
			i := bytes.Index(piece.Data[at:], []byte(text+"\x00"))
			if i < 0 {
				break
			}
			copy(piece.Data[at+i:], to+"\x00")
			at += i + 1
			found++
		}
	}
	if found == 0 {
		t.Fatalf("%q is not in the recording", text)
	}
}

// TestHeaderIsChecked: where the VM no longer says what object headers are like, objects show it.
func TestHeaderIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		recording string
		hidden    []string
	}{
		"names of JDK 28":          {"testdata/objects17", []string{"_metadata._klass", "UseCompressedClassPointers"}},
		"names of JDK 28, compact": {"testdata/objects25", []string{"_metadata._klass", "UseCompressedClassPointers"}},
		"narrow, not exported":     {"testdata/objects17", []string{"_metadata._compressed_klass"}},
		"narrow, no flag":          {"testdata/objects17", []string{"UseCompressedClassPointers"}},
		"compact, no bit":          {"testdata/objects25", []string{"markWord::klass_shift"}},
		"compact, nothing": {"testdata/objects25", []string{"markWord::klass_shift", "_metadata._compressed_klass",
			"UseCompressedClassPointers", "UseCompactObjectHeaders"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := loadRecording(t, test.recording+".gz").attach(t, nil).Layout()
			r := loadRecording(t, test.recording+".gz")
			if strings.Contains(name, "28") {
				rename(t, r, "_metadata._compressed_klass", "_compressed_klass")
			}
			for _, text := range test.hidden {
				rename(t, r, text, "?")
			}
			got := r.attach(t, nil).Layout()
			if got.Objects != want.Objects || !got.HasObjects {
				t.Errorf("objects %v: %+v, want %+v; missing %q", got.HasObjects, got.Objects, want.Objects,
					got.Missing)
			}
		})
	}
}

// TestHeaderContradicted: where what the VM says of headers does not lead to classes, no class is
// claimed.
func TestHeaderContradicted(t *testing.T) {
	for _, name := range []string{"testdata/objects17.gz", "testdata/objects25.gz"} {
		r := loadRecording(t, name)
		base := r.attach(t, nil).heap.schema.klassBase
		r.memory().At(base, vmstructs.WordSize)[2]++ // 64 KiB on
		l := r.attach(t, nil).Layout()
		if missing := strings.Join(l.Missing, " "); l.HasObjects || l.Objects != (javaheap.ObjectLayout{}) ||
			!strings.Contains(missing, "a thread's object leads to") {
			t.Errorf("%s: objects %v, missing %q", name, l.HasObjects, l.Missing)
		}
	}
}

// TestHeaderUnderArchive: where nothing says where the archive of classes has its vtables, a class
// that looks like none may be one of these. JDK 11 is like that.
func TestHeaderUnderArchive(t *testing.T) {
	r := loadRecording(t, "testdata/objects17.gz")
	schema := r.attach(t, nil).heap.schema
	r.memory().At(schema.klassBase, vmstructs.WordSize)[2]++
	for _, bound := range []uint64{schema.archiveLow, schema.archiveHigh} {
		clear(r.memory().At(bound, vmstructs.WordSize))
	}
	if l := r.attach(t, nil).Layout(); !l.HasObjects {
		t.Errorf("missing %q", l.Missing)
	}
}

// TestHeaderOfOther: an object that is said to be a thread's and is another one shows that headers
// are not understood.
func TestHeaderOfOther(t *testing.T) {
	r := loadRecording(t, "testdata/objects17.gz")
	p := r.attach(t, nil)
	objects, err := p.threadObjects()
	if err != nil {
		t.Fatal(err)
	}
	l := p.layout.Objects
	checked := 0
	for _, object := range objects {
		if p.checkThread(object) == nil {
			checked++
		}
	}
	if checked == 0 {
		t.Fatalf("none of %d objects is a thread", len(objects))
	}
	p.layout.Objects.KlassShift++ // another class, or none
	if err := p.checkHeader(); err == nil {
		t.Error("classes that are shifted by one bit more are taken for those of threads")
	}
	p.layout.Objects = l
	if err := p.checkHeader(); err != nil {
		t.Error(err)
	}
}
