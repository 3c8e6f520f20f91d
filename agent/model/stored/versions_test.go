package stored

import (
	"math"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// The offset of a mapping says which version it is of, and nothing else is taken for that.
func TestVersionOf(t *testing.T) {
	for _, id := range []uint32{1, 812, 1<<28 - 1} {
		if got, ok := VersionOf(&pprof.Mapping{File: "[jit:HotSpot]", Offset: VersionOffset(id)}); !ok || got != id {
			t.Errorf("%d is %d, %v", id, got, ok)
		}
	}
	for _, m := range []*pprof.Mapping{nil, {}, {File: "[jit:HotSpot]"}, {File: "[jit:HotSpot]", Offset: 0x1000},
		{File: "/lib/libc.so", Offset: 1 << 32}} {
		if id, ok := VersionOf(m); ok {
			t.Errorf("%v is of version %d", m, id)
		}
	}
}

// Versions of a hostile file are bounded.
func TestHostileVersions(t *testing.T) {
	huge := make([]int, 1000)
	m := &Metadata{Methods: []string{"a\x00b"}, Versions: []Version{
		{ID: 0}, {ID: 1, Level: -4, State: 100, Method: 77, Inlined: huge, Traps: make([]profile.Trap, 1000)},
	}}
	for range MaxVersions {
		m.Versions = append(m.Versions, Version{ID: 2, Traps: []profile.Trap{{Count: math.MaxInt}}})
	}
	m.tidy()
	if len(m.Versions) != MaxVersions || m.LeftOut != 1 || len(m.Versions[0].Inlined) > maxInlined ||
		len(m.Versions[0].Traps) > maxTraps ||
		m.Versions[0].Level != -1 || m.Versions[0].State != int(profile.VersionFreed) || m.MethodName(77) != Unnamed ||
		m.MethodName(-1) != Unnamed {
		t.Errorf("%d versions, %d left out, the first %+v", len(m.Versions), m.LeftOut, m.Versions[0])
	}
	if m.MethodName(0) == "a\x00b" {
		t.Error("a name is not printable")
	}
}
