package debuginfo

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// numbers writes numbers as HotSpot does.
func numbers(bias uint32, list ...uint32) (b []byte) {
	for _, n := range list {
		b = append(b, vmtest.Unsigned5(n, bias)...)
	}
	return b
}

func TestLocals(t *testing.T) {
	const rbp = 5
	for _, bias := range []uint32{0, 1} {
		w := vmtest.NewScopeWriter(bias, 0x1000)
		at := uint32(len(w.Scopes))
		w.Scopes = append(w.Scopes, numbers(bias, 9, // variables
			valueLocation, 4<<locationShift|locationNormal,
			valueLocation, 2*rbp<<locationShift|locationRegister|locationNormal,
			valueInt, 84,
			valueLong, 1, 2,
			valueLocation, 300<<locationShift|2, // a reference
			valueMarker,
			valueLocation, (2*rbp+1)<<locationShift|locationRegister|locationNormal, // half of a register
			valueLocation, 6<<locationShift|locationRegister|locationIntLong,
			valueObject, 1)...)
		scope := w.Scope(0, 1, 3)
		w.Scopes = append(w.Scopes, numbers(bias, at, 0, 0)...)
		w.Position(-1, 0)
		w.Position(8, scope)
		r := raw(w)
		if r.ScopeAt(0) != 0 || r.ScopeAt(1) != scope || r.ScopeAt(2) != 0 || r.ScopeAt(-1) != 0 {
			t.Errorf("scopes %d and %d, want 0 and %d", r.ScopeAt(0), r.ScopeAt(1), scope)
		}
		got := fmt.Sprint(r.Locals(scope, bias))
		if want := "[{2 0 16} {1 5 0} {0 0 0} {0 0 0} {0 0 0} {0 0 0} {0 0 0} {1 3 0}]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := r.Locals(0, bias); got != nil {
			t.Errorf("locals of no scope: %v", got)
		}
	}
}

// FuzzLocals checks that decoding is bounded, whatever the stream is.
func FuzzLocals(f *testing.F) {
	f.Add([]byte{0, 0, 1, 4, 5, 2, 0, 33, 0, 49}, uint32(1), false)
	f.Fuzz(func(t *testing.T, scopes []byte, scope uint32, late bool) {
		bias := uint32(0)
		if late {
			bias = 1
		}
		r := RawScopes{Scopes: scopes}
		list := r.Locals(scope, bias)
		if len(list) > maxLocals || len(list) > len(scopes) {
			t.Fatalf("%d locals of %d bytes", len(list), len(scopes))
		}
		for _, l := range list {
			if l.Kind > vmruntime.LocalStack || l.Register > 31 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
