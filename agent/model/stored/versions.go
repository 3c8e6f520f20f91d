package stored

import (
	"math"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Code versions in a profile: each has a mapping of its own, with the same file and the same
// addresses as all others of the VM, and functions are the same in all versions: tools which do not
// know versions show what they always did. The compile id is in the mapping's offset, as if a file
// had all code that a VM ever compiled, one version behind the other: that distinguishes versions
// for which the VM used the same memory, also when pprof merges profiles. The metadata has the
// rest.

// versionShift leaves room for the code of one version in offsets: HotSpot's code cache has less
// than 2 GiB, and compile ids have 28 bits.
const versionShift = 32

// VersionOffset is the offset of the mapping of a version with that compile id; 0 for none.
func VersionOffset(id uint32) uint64 { return uint64(id) << versionShift }

// VersionOf returns the compile id of the version that a mapping is of.
func VersionOf(m *pprof.Mapping) (id uint32, ok bool) {
	if m == nil || len(m.File) < len(MappingJIT) || m.File[:len(MappingJIT)] != MappingJIT {
		return 0, false
	}
	id = uint32(m.Offset >> versionShift)
	return id, id != 0 && VersionOffset(id) == m.Offset
}

// A Version is one compilation of a method: see profile.Version. Times are since the beginning of
// the profile.
type Version struct {
	PID        int64          `json:"pid"`
	ID         uint32         `json:"id"`
	Level      int            `json:"level"`
	OSR        *int           `json:"osr,omitempty"` // EntryBCI, negative if unknown; nil if it is entered at its begin
	Size       uint32         `json:"size,omitempty"`
	Method     int            `json:"method"` // the system name's place in Metadata.Methods
	Since      time.Duration  `json:"since"`
	Seen       bool           `json:"seen,omitempty"`
	State      int            `json:"state,omitempty"` // profile.VersionState
	InUse      *time.Duration `json:"in_use,omitempty"`
	Until      *time.Duration `json:"until,omitempty"`
	Inlined    []int          `json:"inlined,omitempty"` // places in Metadata.Methods
	Traps      []profile.Trap `json:"traps,omitempty"`
	Decompiles *int           `json:"decompiles,omitempty"`
}

// coarse leaves out what no look at code can resolve: a profile may have thousands of versions.
func coarse(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// NewVersion makes the stored form of a version of a window that began so long after the profile
// did. Place returns the place of a name in Metadata.Methods.
func NewVersion(pid int, v *profile.Version, began time.Duration, place func(name string) int) Version {
	out := Version{
		PID: int64(pid), ID: v.ID, Level: v.Level, Size: v.Size, Method: place(v.SystemName),
		Since: coarse(began + v.Since), Seen: v.Seen, State: int(v.State), Traps: v.Traps,
	}
	if v.EntryBCI != -1 {
		out.OSR = &v.EntryBCI
	}
	if v.InUse != 0 && v.State >= profile.VersionGivenUp {
		at := coarse(began + v.InUse)
		out.InUse = &at
	}
	if v.Until != 0 {
		at := coarse(began + v.Until)
		out.Until = &at
	}
	if v.Decompiles >= 0 {
		out.Decompiles = &v.Decompiles
	}
	for _, name := range v.Inlined {
		out.Inlined = append(out.Inlined, place(name))
	}
	return out
}

// Bounds on versions.
const (
	// MaxVersions is how many versions a profile has at most.
	MaxVersions = 1 << 15
	maxMethods  = 1 << 17
	maxInlined  = 256
	maxTraps    = 64
)

// MethodName is the name with that place in Methods; Unnamed if there is none.
func (m *Metadata) MethodName(place int) string {
	if place < 0 || place >= len(m.Methods) || m.Methods[place] == "" {
		return Unnamed
	}
	return m.Methods[place]
}

// tidyVersions brings versions and their methods into their ranges.
func (m *Metadata) tidyVersions() {
	m.Methods = shorten(m, m.Methods, maxMethods)
	for i := range m.Methods {
		m.Methods[i] = Printable(m.Methods[i])
	}
	m.Versions = shorten(m, slices.DeleteFunc(m.Versions, func(v Version) bool { return v.ID == 0 }), MaxVersions)
	for i := range m.Versions {
		v := &m.Versions[i]
		v.Level, v.State = min(max(v.Level, -1), 99), min(max(v.State, 0), int(profile.VersionFreed))
		v.Inlined, v.Traps = v.Inlined[:min(len(v.Inlined), maxInlined)], v.Traps[:min(len(v.Traps), maxTraps)]
		for j := range v.Traps {
			t := &v.Traps[j]
			t.Method, t.Reason, t.Count = Printable(t.Method), Printable(t.Reason), min(max(t.Count, 0), math.MaxInt32)
		}
	}
}
