package history

import (
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Bounds of the names in a segment.
const (
	maxName    = 1024    // bytes of a name; longer ones are cut when they are stored
	maxStrings = 1 << 19 // strings in a segment
	maxFrames  = 1 << 18
	maxText    = 32 << 20 // bytes of all strings of a segment
)

// maxCached bounds the recorded frames whose stored form a store remembers. They keep names of
// ended processes in memory.
const maxCached = 1 << 16

// A stringID and a frameID are places in names. Windows refer to names by them: adding up windows
// then compares and hashes small numbers, and the garbage collector has no pointers to follow.
type (
	stringID uint32
	frameID  uint32
)

// rare is the frame that stands for contexts that are too many. All names have it.
const rare frameID = 0

// A frame is a frame as it is stored. An address means nothing without its process, and would make
// a context of each.
type frame struct {
	function, system, file, mapped, build stringID
	line, start                           int // lines of the code, and of the function's begin
	kind                                  symbol.Kind
	inlined, approximate                  bool
}

// names are the strings and frames of windows, each once.
type names struct {
	strings   []string // the first one is empty
	frames    []frame  // the first one is rare
	text      int      // bytes of all strings
	stringIDs map[string]stringID
	frameIDs  map[frame]frameID

	recorded map[symbol.Symbol]frameID // at most about maxCached
	groups   map[string]stringID       // IDs of the names of threads
	symbols  []symbol.Symbol           // symbols of frames; the zero Symbol if it was not asked for yet
}

func newNames() *names {
	n := &names{
		stringIDs: make(map[string]stringID), frameIDs: make(map[frame]frameID),
		recorded: make(map[symbol.Symbol]frameID), groups: make(map[string]stringID),
	}
	n.string("")
	n.frame(n.frameOf(profile.Rare.Value()))
	return n
}

// string returns the ID of a string.
func (n *names) string(s string) stringID {
	if s == "" && len(n.strings) > 0 {
		return 0
	}
	if len(s) > maxName {
		s = symbol.Printable(s, maxName)
	}
	id, known := n.stringIDs[s]
	if !known {
		id = stringID(len(n.strings))
		n.stringIDs[s], n.strings = id, append(n.strings, s)
		n.text += len(s)
	}
	return id
}

// frame returns the ID of a frame.
func (n *names) frame(f frame) frameID {
	id, known := n.frameIDs[f]
	if !known {
		id = frameID(len(n.frames))
		n.frameIDs[f], n.frames = id, append(n.frames, f)
	}
	return id
}

// lostFrame is the frame that stands for those in damaged parts of a segment.
func (n *names) lostFrame() frameID {
	return n.frame(frame{function: n.string(lostName), system: n.string(lostName), kind: symbol.KindMarker})
}

// record returns the ID of a recorded frame.
func (n *names) record(s symbol.Symbol) frameID {
	s = s.WithoutAddress()
	id, known := n.recorded[s]
	if !known {
		if len(n.recorded) >= maxCached {
			clear(n.recorded)
		}
		id = n.frame(n.frameOf(s.Value()))
		n.recorded[s] = id
	}
	return id
}

func (n *names) frameOf(s symbol.Frame) frame {
	f := frame{function: n.string(s.Function), system: n.string(s.SystemName), file: n.string(s.File), line: s.Line,
		start: s.StartLine, kind: s.Kind, inlined: s.Inlined, approximate: s.Approximate}
	if s.Mapping != (unique.Handle[symbol.Mapping]{}) { // the zero handle has no value
		m := s.Mapping.Value()
		f.mapped, f.build = n.string(m.File), n.string(m.BuildID)
	}
	return f
}

// group returns the ID of a thread's group.
func (n *names) group(thread string) stringID {
	id, known := n.groups[thread]
	if !known {
		if len(n.groups) >= maxCached {
			clear(n.groups)
		}
		id = n.string(stored.ThreadGroup(thread))
		n.groups[thread] = id
	}
	return id
}

// symbol returns a frame as profiles have it.
func (n *names) symbol(id frameID) symbol.Symbol {
	if missing := len(n.frames) - len(n.symbols); missing > 0 {
		n.symbols = append(n.symbols, make([]symbol.Symbol, missing)...)
	}
	if n.symbols[id] == (symbol.Symbol{}) {
		f := &n.frames[id]
		s := symbol.Frame{Function: n.strings[f.function], SystemName: n.strings[f.system], File: n.strings[f.file],
			Line: f.line, StartLine: f.start, Kind: f.kind, Inlined: f.inlined, Approximate: f.approximate}
		if f.mapped != 0 || f.build != 0 {
			s.Mapping = unique.Make(symbol.Mapping{File: n.strings[f.mapped], BuildID: n.strings[f.build]})
		}
		n.symbols[id] = symbol.Intern(s)
	}
	return n.symbols[id]
}

// tables are the names in a segment, each once, in the order in which windows referred to them
// first. References in the segment are places in its tables.
type tables struct {
	names   *names // names in the windows that are written or read
	strings []string
	frames  []frame // Readers: their strings are places, too. Writers: they are IDs.
	text    int     // bytes of all strings

	// Readers: by place, the ID in names plus 1. Writers: by ID, the place plus 1. 0: there is none
	// yet.
	stringAt, frameAt []uint32
	// lost says that nobody knows which places have the names that were defined since: all of them
	// are lostName. Readers of the format shared.
	lost bool
}

func newTables(n *names) *tables { return &tables{names: n} }

// full reports whether a segment has as many names as it should.
func (t *tables) full() bool {
	return len(t.names.strings) > maxStrings/4 || len(t.names.frames) > maxFrames/4 || t.names.text > maxText/4
}

// tooMany reports whether readers would refuse the names.
func (t *tables) tooMany() bool {
	return len(t.strings) > maxStrings || len(t.frames) > maxFrames || t.text > maxText
}

// placeString returns the place of a string, which is added if need be.
func (t *tables) placeString(id stringID) stringID {
	for int(id) >= len(t.stringAt) {
		t.stringAt = append(t.stringAt, make([]uint32, len(t.names.strings)-len(t.stringAt))...)
	}
	if t.stringAt[id] == 0 {
		s := t.names.strings[id]
		t.strings = append(t.strings, s)
		t.text += len(s)
		t.stringAt[id] = uint32(len(t.strings))
	}
	return stringID(t.stringAt[id] - 1)
}

// placeFrame returns the place of a frame, which is added if need be.
func (t *tables) placeFrame(id frameID) int {
	for int(id) >= len(t.frameAt) {
		t.frameAt = append(t.frameAt, make([]uint32, len(t.names.frames)-len(t.frameAt))...)
	}
	if t.frameAt[id] == 0 {
		t.frames = append(t.frames, t.names.frames[id])
		t.frameAt[id] = uint32(len(t.frames))
	}
	return int(t.frameAt[id] - 1)
}

// stringFrom returns the string at a place, which must exist.
func (t *tables) stringFrom(place stringID) stringID {
	if t.stringAt[place] == 0 {
		t.stringAt[place] = uint32(t.names.string(t.strings[place])) + 1
	}
	return stringID(t.stringAt[place] - 1)
}

// frameFrom returns the frame at a place, which must exist.
func (t *tables) frameFrom(place int) frameID {
	if t.frameAt[place] == 0 {
		t.frameAt[place] = uint32(t.names.frame(t.frames[place].with(t.stringFrom))) + 1
	}
	return frameID(t.frameAt[place] - 1)
}

// with returns a frame with other strings.
func (f frame) with(other func(stringID) stringID) frame {
	for _, s := range []*stringID{&f.function, &f.system, &f.file, &f.mapped, &f.build} {
		*s = other(*s)
	}
	return f
}

// add adds names that a reader read.
func (t *tables) add(strings []string, frames []frame) {
	for _, s := range strings {
		t.text += len(s)
	}
	t.strings, t.stringAt = append(t.strings, strings...), append(t.stringAt, make([]uint32, len(strings))...)
	t.frames, t.frameAt = append(t.frames, frames...), append(t.frameAt, make([]uint32, len(frames))...)
}

// extend makes a reader's tables have so many names before a record, and reports whether there can
// be so many. Names that were in damaged records are lostName.
func (t *tables) extend(strings, frames uint64) bool {
	if strings < uint64(len(t.strings)) || strings > maxStrings || frames < uint64(len(t.frames)) ||
		frames > maxFrames {
		return false
	}
	for uint64(len(t.strings)) < strings {
		t.strings, t.stringAt = append(t.strings, lostName), append(t.stringAt, 0)
	}
	for uint64(len(t.frames)) < frames {
		t.frames, t.frameAt = append(t.frames, frame{}), append(t.frameAt, uint32(t.names.lostFrame())+1)
	}
	return true
}

// truncate takes back what a reader read of a record that is not right. Text stays counted.
func (t *tables) truncate(strings, frames int) {
	t.strings, t.stringAt = t.strings[:strings], t.stringAt[:strings]
	t.frames, t.frameAt = t.frames[:frames], t.frameAt[:frames]
}

// forget takes back the names that a writer added since there were so many.
func (t *tables) forget(strings, frames int) {
	for id, at := range t.stringAt {
		if int(at) > strings {
			t.stringAt[id] = 0
		}
	}
	for id, at := range t.frameAt {
		if int(at) > frames {
			t.frameAt[id] = 0
		}
	}
	for _, s := range t.strings[strings:] {
		t.text -= len(s)
	}
	t.strings, t.frames = t.strings[:strings], t.frames[:frames]
}

// writer returns tables for writing that go on where those of a reader are.
func (t *tables) writer() *tables {
	w := &tables{names: t.names, strings: t.strings, frames: t.frames, text: t.text}
	for place := range t.strings {
		w.stringAt = placed(w.stringAt, int(t.stringFrom(stringID(place))), place)
	}
	for place := range t.frames {
		w.frameAt = placed(w.frameAt, int(t.frameFrom(place)), place)
	}
	return w
}

func placed(list []uint32, id, place int) []uint32 {
	for id >= len(list) {
		list = append(list, 0)
	}
	list[id] = uint32(place) + 1
	return list
}
