package sink

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// siteNames tells call sites of one method apart for people: by line, and by offset where a line has several. All
// sites are added before the first is named.
type siteNames struct {
	offsets map[lineOf]int32 // of the site on a line, or several
}

type lineOf struct {
	caller string
	line   int32
}

// several is no offset, and not that of an unknown one.
const several = -2

func newSiteNames() siteNames { return siteNames{make(map[lineOf]int32)} }

func (n siteNames) add(caller string, s profile.Site) {
	at := lineOf{caller, s.Line}
	offset, known := n.offsets[at]
	if !known {
		n.offsets[at] = s.Offset
	} else if offset != s.Offset {
		n.offsets[at] = several
	}
}

// suffix is what follows the name of the caller: ":12", or ":12@34".
func (n siteNames) suffix(caller string, s profile.Site) (suffix string) {
	if s.Line > 0 {
		suffix = fmt.Sprintf(":%d", s.Line)
	}
	if s.Offset >= 0 && (s.Line == 0 || n.offsets[lineOf{caller, s.Line}] == several) {
		suffix += fmt.Sprintf("@%d", s.Offset)
	}
	return suffix
}
