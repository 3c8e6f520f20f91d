package debuginfo

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// raw is what a writer wrote.
func raw(w *vmtest.ScopeWriter) RawScopes { return RawScopes{w.PCs, w.Scopes, w.Metadata} }

func TestDecodeScopes(t *testing.T) {
	for _, bias := range []uint32{0, 1} {
		w := vmtest.NewScopeWriter(bias, 0x1000, 0x2000, 0x3000)
		outer := w.Scope(0, 1, 3)
		middle := w.Scope(outer, 2, 300)
		leaf := w.Scope(middle, 3, -1)
		w.Position(-1, 0)
		w.Position(16, leaf)
		w.Position(24, outer)
		w.Position(40, middle)
		w.Position(1000, 0)
		table, err := Decode(raw(w), bias)
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
			if got := table.text(table.At(test.offset)); got != test.want &&
				!(test.want == "shared" && !table.At(test.offset).Recorded) {
				t.Errorf("at %d: %s, want %s", test.offset, got, test.want)
			}
		}
		table.Complete = true
		if got, want := table.text(table.At(17)), "1000@3"; got != want {
			t.Errorf("where all instructions are recorded, at 17: %s, want %s", got, want)
		}
		if got, want := table.text(table.At(41)), ""; got != want {
			t.Errorf("behind what is recorded: %s, want %s", got, want)
		}
		if len(table.Scopes) != 3 || len(table.Methods) != 3 {
			t.Errorf("%+v", table)
		}
	}
}

// text is a place: "3000@-1 2000@300", innermost first; "?" for what is not known.
func (t *Table) text(at Place) string {
	var b strings.Builder
	if !at.Recorded {
		b.WriteString("in ")
	}
	for i := at.Scope; i != NoScope; i = t.Scopes[i].Sender {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), " ") {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%x@", t.Methods[t.Scopes[i].Method])
		if i == at.Scope && !at.Located {
			b.WriteByte('?')
		} else {
			fmt.Fprint(&b, t.Scopes[i].BCI)
		}
	}
	return b.String()
}

func TestDecodeScopesRefuses(t *testing.T) {
	for name, build := range map[string]func(*vmtest.ScopeWriter){
		"scope outside":      func(w *vmtest.ScopeWriter) { w.Position(8, 1000) },
		"sender behind":      func(w *vmtest.ScopeWriter) { w.Position(8, w.Scope(uint32(len(w.Scopes))+4, 1, 0)) },
		"sender is itself":   func(w *vmtest.ScopeWriter) { w.Position(8, w.Scope(uint32(len(w.Scopes)), 1, 0)) },
		"method 0":           func(w *vmtest.ScopeWriter) { w.Position(8, w.Scope(0, 0, 0)) },
		"method outside":     func(w *vmtest.ScopeWriter) { w.Position(8, w.Scope(0, 2, 0)) },
		"bytecode too far":   func(w *vmtest.ScopeWriter) { w.Position(8, w.Scope(0, 1, 70000)) },
		"not in order":       func(w *vmtest.ScopeWriter) { w.Position(8, 0); w.Position(7, 0) },
		"cut":                func(w *vmtest.ScopeWriter) { w.Position(8, w.Scope(0, 1, 0)); w.Scopes = w.Scopes[:3] },
		"too many positions": func(w *vmtest.ScopeWriter) { w.PCs = make([]byte, pcDescSize*(MaxPositions+1)) },
		"too deep": func(w *vmtest.ScopeWriter) {
			sender := uint32(0)
			for range MaxInlining + 1 {
				sender = w.Scope(sender, 1, 0)
			}
			w.Position(8, sender)
		},
	} {
		w := vmtest.NewScopeWriter(0, 0x1000)
		build(w)
		if table, err := Decode(raw(w), 0); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, table, err)
		}
	}
}

// FuzzScopes checks that decoding ends, that what comes out points nowhere else, and that chains
// end.
func FuzzScopes(f *testing.F) {
	w := vmtest.NewScopeWriter(0, 0x1000, 0x2000)
	w.Position(8, w.Scope(w.Scope(0, 1, 3), 2, 4))
	f.Add(w.PCs, w.Scopes, w.Metadata, int32(8), false, false)
	f.Fuzz(func(t *testing.T, pcs, scopes, metadata []byte, offset int32, late, complete bool) {
		bias := uint32(0)
		if late {
			bias = 1
		}
		table, err := Decode(RawScopes{pcs, scopes, metadata}, bias)
		if (err == nil) != (table != nil) {
			t.Fatalf("%v, %v", table, err)
		}
		if err != nil {
			return
		}
		if len(table.Scopes) > len(scopes) || len(table.Positions) > len(pcs) || len(table.Methods) > len(metadata) {
			t.Fatalf("more came out than was put in: %d scopes, %d positions", len(table.Scopes), len(table.Positions))
		}
		if table.Complete = complete; complete {
			table.ForgetDefault([]int32{offset})
		}
		i := table.At(offset).Scope
		for steps := 0; i != NoScope; steps++ {
			if steps > len(table.Scopes) {
				t.Fatal("chain of scopes does not end")
			}
			_ = table.Methods[table.Scopes[i].Method]
			i = table.Scopes[i].Sender
		}
	})
}
