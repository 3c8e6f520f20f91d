package sink

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// bases is a set of ways to learn how often a call is made.
type bases uint8

// basisMarks are the letters that bases are shown as.
var basisMarks = [...]struct {
	basis profile.Basis
	means string
}{
	{profile.Sampled, "from the calls that were seen"},
	{profile.Counted, "every call"},
	{profile.Estimated, "from the time in callees and the guest's own counters"},
	{profile.Inferred, "compiled away, follows from what was compiled"},
}

// basisOf reads a label; it is empty for one that is not known.
func basisOf(label string) bases {
	for i, m := range basisMarks {
		if m.basis.String() == label {
			return 1 << i
		}
	}
	return 0
}

// String returns the marks in brackets, or nothing.
func (b bases) String() string {
	var letters string
	for i, m := range basisMarks {
		if b&(1<<i) != 0 {
			letters += m.basis.String()[:1]
		}
	}
	if letters == "" {
		return ""
	}
	return "[" + letters + "]"
}

// legend explains the marks, in their order.
func (b bases) legend() string {
	var list []string
	for i, m := range basisMarks {
		if name := m.basis.String(); b&(1<<i) != 0 {
			list = append(list, name[:1]+" "+name+": "+m.means)
		}
	}
	return strings.Join(list, "; ")
}
