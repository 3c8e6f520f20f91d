package hotspot

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// raw is what a writer wrote.
func raw(w *scopeWriter) rawScopes { return rawScopes{w.pcs, w.scopes, w.metadata} }

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
		table, err := decodeScopes(raw(w), bias)
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
		"sender behind":      func(w *scopeWriter) { w.position(8, w.scope(uint32(len(w.scopes))+4, 1, 0)) },
		"sender is itself":   func(w *scopeWriter) { w.position(8, w.scope(uint32(len(w.scopes)), 1, 0)) },
		"method 0":           func(w *scopeWriter) { w.position(8, w.scope(0, 0, 0)) },
		"method outside":     func(w *scopeWriter) { w.position(8, w.scope(0, 2, 0)) },
		"bytecode too far":   func(w *scopeWriter) { w.position(8, w.scope(0, 1, 70000)) },
		"not in order":       func(w *scopeWriter) { w.position(8, 0); w.position(7, 0) },
		"cut":                func(w *scopeWriter) { w.position(8, w.scope(0, 1, 0)); w.scopes = w.scopes[:3] },
		"too many positions": func(w *scopeWriter) { w.pcs = make([]byte, pcDescSize*(maxPositions+1)) },
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
		if table, err := decodeScopes(raw(w), 0); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, table, err)
		}
	}
}

// FuzzScopes checks that decoding ends, that what comes out points nowhere else, and that chains end.
func FuzzScopes(f *testing.F) {
	w := newScopeWriter(0, 0x1000, 0x2000)
	w.position(8, w.scope(w.scope(0, 1, 3), 2, 4))
	f.Add(w.pcs, w.scopes, w.metadata, int32(8), false, false)
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
