package hotspot

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
)

// TestAdapterByKind: an adapter is one by its kind where its name is a signature, as adapters from
// an AOT cache have it.
func TestAdapterByKind(t *testing.T) {
	r := loadRecording(t, "testdata/jdk25.gz")
	p := r.attach(t, nil)
	var adapter *codecache.Blob
	err := p.Cache.Walk(&p.Codes.Schema.Blob, func(blobs []codecache.Blob) error {
		for _, b := range blobs {
			if p.Kinds.Lookup(b.Name) == codecache.KindAdapter {
				adapter = &b
			}
		}
		return nil
	})
	if err != nil || adapter == nil {
		t.Fatalf("no adapter, %v", err)
	}
	rename(t, r, "I2C/C2I adapters", "LI")
	r.withKind(t, p.Codes.Schema.Blob.Kind.At(adapter.Addr), byte(p.Codes.Schema.Blob.AdapterKind))
	p = r.attach(t, nil)
	if kind := p.Kinds.Lookup(adapter.Name); kind != codecache.KindStub {
		t.Fatalf("the name is still that of kind %d", kind)
	}
	frames, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Stub, PC: adapter.Begin})
	if err != nil || len(frames) != 1 || frames[0].Function != "[i2c/c2i adapter]" {
		t.Errorf("%+v, %v", frames, err)
	}
}

// withKind has a byte in the recording that nobody read when it was made.
func (r *recording) withKind(t *testing.T, addr uint64, kind byte) {
	t.Helper()
	if b := r.memory().At(addr, 1); b != nil {
		if b[0] != kind {
			t.Fatalf("kind %d, want %d", b[0], kind)
		}
		return
	}
	for i := range r.Pieces {
		if piece := &r.Pieces[i]; piece.Addr+uint64(len(piece.Data)) == addr {
			piece.Data = append(piece.Data, kind)
			return
		}
	}
	t.Fatalf("nothing was recorded before %#x", addr)
}
