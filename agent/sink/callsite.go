package sink

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// The format has no field for the offset of a call site, but it tells locations apart by their address, which nothing
// else needs where a method stands for itself. So the address of a caller's location is the offset of the site plus
// one, and 0 if that is not known.

// siteAddress is where the offset of a call site is stored.
func siteAddress(s profile.Site) uint64 {
	if s.Offset < 0 {
		return 0
	}
	return uint64(s.Offset) + 1
}

// siteOf reads a call site back. What cannot be one is unknown.
func siteOf(line int64, address uint64) profile.Site {
	site := profile.Site{Offset: -1}
	if 0 < line && line <= math.MaxInt32 {
		site.Line = int32(line)
	}
	if 0 < address && address <= math.MaxInt32+1 {
		site.Offset = int32(address - 1)
	}
	return site
}

// noSite is a call site of which nothing is known.
var noSite = profile.Site{Offset: -1}
