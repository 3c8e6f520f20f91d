package digest

import (
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// MaxName is the length in bytes of the longest string in Names; longer ones are cut.
const MaxName = 1024

// maxCached bounds what names remember besides the strings and frames that have IDs: symbols of
// frames as they were recorded, and names of threads. They keep names of ended processes in memory.
const maxCached = 1 << 16

// A StringID and a FrameID are places in Names.
type (
	StringID uint32
	FrameID  uint32
)

// Rare is the ID of profile.Rare in all names.
const Rare FrameID = 0

// Names are the strings and frames of windows, each once. Others read the fields only.
type Names struct {
	Strings []string        // the first one is empty
	Frames  []symbol.Symbol // as Frame has them; the first one is profile.Rare
	Text    int             // bytes of all strings

	part      *Part
	stringIDs map[string]StringID
	frameIDs  map[symbol.Symbol]FrameID // IDs of Frames, and of at most about maxCached recorded ones
	groups    map[string]StringID       // IDs of the names of threads
}

// NewNames returns the names of windows, or of a part of them if it is not nil.
func NewNames(of *Part) *Names {
	n := &Names{part: of, stringIDs: make(map[string]StringID), frameIDs: make(map[symbol.Symbol]FrameID),
		groups: make(map[string]StringID)}
	n.String("")
	n.Frame(profile.Rare)
	return n
}

// String returns the ID of a string.
func (n *Names) String(s string) StringID {
	if s == "" && len(n.Strings) > 0 {
		return 0
	}
	if len(s) > MaxName {
		s = symbol.Printable(s, MaxName)
	}
	id, known := n.stringIDs[s]
	if !known {
		id = StringID(len(n.Strings))
		n.stringIDs[s], n.Strings = id, append(n.Strings, s)
		n.Text += len(s)
	}
	return id
}

// Frame returns the ID of a frame, of which addresses and code versions are left out: they mean
// nothing without its process, and would make a context of each.
func (n *Names) Frame(s symbol.Symbol) FrameID {
	s = s.WithoutAddress()
	id, known := n.frameIDs[s]
	if known {
		return id
	}
	one := n.without(s)
	if id, known = n.frameIDs[one]; !known {
		id = FrameID(len(n.Frames))
		n.frameIDs[one], n.Frames = id, append(n.Frames, one)
	}
	if one != s {
		if len(n.frameIDs) >= len(n.Frames)+maxCached {
			clear(n.frameIDs)
			for id, one := range n.Frames {
				n.frameIDs[one] = FrameID(id)
			}
		}
		n.frameIDs[s] = id
	}
	return id
}

// without returns a frame without what only its process knows.
func (n *Names) without(s symbol.Symbol) symbol.Symbol {
	var was, m symbol.Mapping
	f := s.Value()
	if f.Mapping != (unique.Handle[symbol.Mapping]{}) { // the zero handle has no value
		was = f.Mapping.Value()
		m = symbol.Mapping{File: was.File, BuildID: was.BuildID}
	}
	vague := f.Approximate
	if n.part != nil {
		m.BuildID, vague = "", false
	}
	if m == was && vague == f.Approximate {
		return s
	}
	f.Mapping, f.Approximate = unique.Handle[symbol.Mapping]{}, vague
	if m != (symbol.Mapping{}) {
		f.Mapping = unique.Make(m)
	}
	return symbol.Intern(f)
}

// group returns the ID of a thread's group.
func (n *Names) group(thread string) StringID {
	if n.part != nil {
		return 0
	}
	id, known := n.groups[thread]
	if !known {
		if len(n.groups) >= maxCached {
			clear(n.groups)
		}
		id = n.String(stored.ThreadGroup(thread))
		n.groups[thread] = id
	}
	return id
}
