package hotspot

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Names of static variables: where the addresses of narrow classes begin, and by how much these are
// shifted.
var (
	klassBase  = []string{"CompressedKlassPointers._base", "CompressedKlassPointers._narrow_klass._base"}
	klassShift = []string{"CompressedKlassPointers._shift", "CompressedKlassPointers._narrow_klass._shift"}
)

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
		base := r.attach(t, nil).static(t, klassBase...)
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
	p := r.attach(t, nil)
	r.memory().At(p.static(t, klassBase...), vmstructs.WordSize)[2]++
	for _, bound := range []string{"MetaspaceObj._shared_metaspace_base", "MetaspaceObj._shared_metaspace_top"} {
		clear(r.memory().At(p.static(t, bound), vmstructs.WordSize))
	}
	if l := r.attach(t, nil).Layout(); !l.HasObjects {
		t.Errorf("missing %q", l.Missing)
	}
}

// TestHeaderOfOther: classes that are shifted by one bit more are not taken for those of threads.
func TestHeaderOfOther(t *testing.T) {
	r := loadRecording(t, "testdata/objects17.gz")
	r.memory().At(r.attach(t, nil).static(t, klassShift...), 4)[0]++
	if l := r.attach(t, nil).Layout(); l.HasObjects {
		t.Errorf("objects are %+v", l.Objects)
	}
}
