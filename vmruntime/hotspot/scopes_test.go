package hotspot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
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

// position adds a code position.
func (w *scopeWriter) position(offset int32, scope uint32) {
	for _, n := range []uint32{uint32(offset), scope, 0, 0} {
		w.raw.pcs = binary.LittleEndian.AppendUint32(w.raw.pcs, n)
	}
}

func TestDecodeScopes(t *testing.T) {
	for _, bias := range []uint32{0, 1} {
		w := newScopeWriter(bias, 0x1000, 0x2000, 0x3000)
		outer := w.scope(0, 1, 3)
		middle := w.scope(outer, 2, 300)
		leaf := w.scope(middle, 3, -1)
		w.position(-1, 0)
		w.position(16, leaf)
		w.position(24, outer)
		w.position(40, middle)
		w.position(1000, 0)
		table, err := decodeScopes(w.raw, bias)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			offset int32
			want   string
		}{
			{16, "3000@-1 2000@300 1000@3"},
			{24, "1000@3"},
			{40, "2000@300 1000@3"},
			{17, "shared"},
			{2000, "shared"},
		} {
			if got := table.text(table.at(test.offset)); got != test.want && !(test.want == "shared" && !table.at(test.offset).recorded) {
				t.Errorf("at %d: %s, want %s", test.offset, got, test.want)
			}
		}
		table.complete = true
		if got, want := table.text(table.at(17)), "1000@3"; got != want {
			t.Errorf("where all instructions are recorded, at 17: %s, want %s", got, want)
		}
		if got, want := table.text(table.at(41)), ""; got != want {
			t.Errorf("behind what is recorded: %s, want %s", got, want)
		}
		if len(table.scopes) != 3 || len(table.methods) != 3 {
			t.Errorf("%+v", table)
		}
	}
}

// text is a place: "3000@-1 2000@300", innermost first; "?" for what is not known.
func (t *scopeTable) text(at place) string {
	var b strings.Builder
	if !at.recorded {
		b.WriteString("in ")
	}
	for i := at.scope; i != noScope; i = t.scopes[i].sender {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), " ") {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%x@", t.methods[t.scopes[i].method])
		if i == at.scope && !at.located {
			b.WriteByte('?')
		} else {
			fmt.Fprint(&b, t.scopes[i].bci)
		}
	}
	return b.String()
}

func TestDecodeScopesRefuses(t *testing.T) {
	for name, build := range map[string]func(*scopeWriter){
		"scope outside":      func(w *scopeWriter) { w.position(8, 1000) },
		"sender behind":      func(w *scopeWriter) { w.position(8, w.scope(uint32(len(w.raw.scopes))+4, 1, 0)) },
		"sender is itself":   func(w *scopeWriter) { w.position(8, w.scope(uint32(len(w.raw.scopes)), 1, 0)) },
		"method 0":           func(w *scopeWriter) { w.position(8, w.scope(0, 0, 0)) },
		"method outside":     func(w *scopeWriter) { w.position(8, w.scope(0, 2, 0)) },
		"bytecode too far":   func(w *scopeWriter) { w.position(8, w.scope(0, 1, 70000)) },
		"not in order":       func(w *scopeWriter) { w.position(8, 0); w.position(7, 0) },
		"cut":                func(w *scopeWriter) { w.position(8, w.scope(0, 1, 0)); w.raw.scopes = w.raw.scopes[:3] },
		"too many positions": func(w *scopeWriter) { w.raw.pcs = make([]byte, pcDescSize*(maxPositions+1)) },
		"too deep": func(w *scopeWriter) {
			sender := uint32(0)
			for range maxInlining + 1 {
				sender = w.scope(sender, 1, 0)
			}
			w.position(8, sender)
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
	w.position(8, w.scope(w.scope(0, 1, 3), 2, 4))
	f.Add(w.raw.pcs, w.raw.scopes, w.raw.metadata, int32(8), false, false)
	f.Fuzz(func(t *testing.T, pcs, scopes, metadata []byte, offset int32, late, complete bool) {
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
		if table.complete = complete; complete {
			table.forgetDefault(map[int32]bool{offset: true})
		}
		i := table.at(offset).scope
		for steps := 0; i != noScope; steps++ {
			if steps > len(table.scopes) {
				t.Fatal("chain of scopes does not end")
			}
			_ = table.methods[table.scopes[i].method]
			i = table.scopes[i].sender
		}
	})
}
