package hotspot

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A scopeWriter writes debug information as a compiler does: callers first.
type scopeWriter struct {
	raw  rawScopes
	bias uint32
}

func newScopeWriter(bias uint32, methods ...uint64) *scopeWriter {
	w := &scopeWriter{bias: bias}
	w.raw.scopes = []byte{0xff} // offset 0 means none
	for _, m := range methods {
		w.raw.metadata = binary.LittleEndian.AppendUint64(w.raw.metadata, m)
	}
	return w
}

// scope adds a scope in method slot (from 1) and returns its offset.
func (w *scopeWriter) scope(sender, slot uint32, bci int) uint32 {
	offset := uint32(len(w.raw.scopes))
	for _, n := range []uint32{sender, slot, uint32(bci + 1)} {
		w.raw.scopes = append(w.raw.scopes, encode5(n, w.bias)...)
	}
	return offset
}

// position adds a code position; objects is 0 between safepoints.
func (w *scopeWriter) position(offset int32, scope, objects uint32) {
	for _, n := range []uint32{uint32(offset), scope, objects, 0} {
		w.raw.pcs = binary.LittleEndian.AppendUint32(w.raw.pcs, n)
	}
}

func TestDecodeScopes(t *testing.T) {
	for _, bias := range []uint32{0, 1} {
		w := newScopeWriter(bias, 0x1000, 0x2000, 0x3000)
		outer := w.scope(0, 1, 3)
		middle := w.scope(outer, 2, 300)
		leaf := w.scope(middle, 3, -1)
		w.position(-1, 0, 0)
		w.position(16, leaf, 7)
		w.position(24, outer, 7)
		w.position(40, middle, 7)
		w.position(1000, 0, 0)
		table, err := decodeScopes(w.raw, bias)
		if err != nil {
			t.Fatal(err)
		}
		type step struct {
			method uint64
			bci    int32
		}
		for _, test := range []struct {
			offset int32
			exact  bool
			want   []step
		}{
			{0, false, []step{{0x3000, -1}, {0x2000, 300}, {0x1000, 3}}},
			{16, true, []step{{0x3000, -1}, {0x2000, 300}, {0x1000, 3}}},
			{17, false, []step{{0x1000, 3}}},
			{40, true, []step{{0x2000, 300}, {0x1000, 3}}},
			{41, false, nil},
			{2000, false, nil},
		} {
			i, exact := table.at(test.offset)
			var got []step
			for ; i != noScope; i = table.scopes[i].sender {
				got = append(got, step{table.methods[table.scopes[i].method], table.scopes[i].bci})
			}
			if exact != test.exact || !reflect.DeepEqual(got, test.want) {
				t.Errorf("at %d: %v, exact %v; want %v, %v", test.offset, got, exact, test.want, test.exact)
			}
		}
		if len(table.scopes) != 3 || len(table.methods) != 3 || table.complete {
			t.Errorf("%+v", table)
		}
	}
}

// TestDecodeScopesBetweenSafepoints: a position without objects says that DebugNonSafepoints was on.
func TestDecodeScopesBetweenSafepoints(t *testing.T) {
	w := newScopeWriter(0, 0x1000)
	w.position(8, w.scope(0, 1, 0), 0)
	if table, err := decodeScopes(w.raw, 0); err != nil || !table.complete {
		t.Errorf("%+v, %v", table, err)
	}
}

func TestDecodeScopesRefuses(t *testing.T) {
	for name, build := range map[string]func(*scopeWriter){
		"scope outside":      func(w *scopeWriter) { w.position(8, 1000, 0) },
		"sender behind":      func(w *scopeWriter) { w.position(8, w.scope(uint32(len(w.raw.scopes))+4, 1, 0), 0) },
		"sender is itself":   func(w *scopeWriter) { w.position(8, w.scope(uint32(len(w.raw.scopes)), 1, 0), 0) },
		"method 0":           func(w *scopeWriter) { w.position(8, w.scope(0, 0, 0), 0) },
		"method outside":     func(w *scopeWriter) { w.position(8, w.scope(0, 2, 0), 0) },
		"bytecode too far":   func(w *scopeWriter) { w.position(8, w.scope(0, 1, 70000), 0) },
		"not in order":       func(w *scopeWriter) { w.position(8, 0, 0); w.position(7, 0, 0) },
		"cut":                func(w *scopeWriter) { w.position(8, w.scope(0, 1, 0), 0); w.raw.scopes = w.raw.scopes[:3] },
		"too many positions": func(w *scopeWriter) { w.raw.pcs = make([]byte, pcDescSize*(maxPositions+1)) },
		"too deep": func(w *scopeWriter) {
			sender := uint32(0)
			for range maxInlining + 1 {
				sender = w.scope(sender, 1, 0)
			}
			w.position(8, sender, 0)
		},
	} {
		w := newScopeWriter(0, 0x1000)
		build(w)
		if table, err := decodeScopes(w.raw, 0); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, table, err)
		}
	}
}

// FuzzScopes checks that decoding ends, that what comes out points nowhere else, and that chains end.
func FuzzScopes(f *testing.F) {
	w := newScopeWriter(0, 0x1000, 0x2000)
	w.position(8, w.scope(w.scope(0, 1, 3), 2, 4), 1)
	f.Add(w.raw.pcs, w.raw.scopes, w.raw.metadata, int32(8), false)
	f.Fuzz(func(t *testing.T, pcs, scopes, metadata []byte, offset int32, late bool) {
		bias := uint32(0)
		if late {
			bias = 1
		}
		table, err := decodeScopes(rawScopes{pcs, scopes, metadata}, bias)
		if (err == nil) != (table != nil) {
			t.Fatalf("%v, %v", table, err)
		}
		if err != nil {
			return
		}
		if len(table.scopes) > len(scopes) || len(table.positions) > len(pcs) || len(table.methods) > len(metadata) {
			t.Fatalf("more came out than was put in: %d scopes, %d positions", len(table.scopes), len(table.positions))
		}
		i, _ := table.at(offset)
		for steps := 0; i != noScope; steps++ {
			if steps > len(table.scopes) {
				t.Fatal("chain of scopes does not end")
			}
			_ = table.methods[table.scopes[i].method]
			i = table.scopes[i].sender
		}
	})
}
