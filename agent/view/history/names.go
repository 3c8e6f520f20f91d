package history

import (
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Bounds of the names in a segment.
const (
	maxStrings = 1 << 19
	maxFrames  = 1 << 18
	maxText    = 32 << 20 // bytes of all strings
)

// A frame is a frame as it is stored.
type frame struct {
	function, system, file, mapped, build digest.StringID
	line, start                           int // lines of the code, and of the function's begin
	kind                                  symbol.Kind
	inlined, approximate                  bool
}

// frameOf is the stored form of a frame that names have.
func frameOf(n *digest.Names, id digest.FrameID) frame {
	s := n.Frames[id].Value()
	f := frame{function: n.String(s.Function), system: n.String(s.SystemName), file: n.String(s.File), line: s.Line,
		start: s.StartLine, kind: s.Kind, inlined: s.Inlined, approximate: s.Approximate}
	if s.Mapping != (unique.Handle[symbol.Mapping]{}) { // the zero handle has no value
		m := s.Mapping.Value()
		f.mapped, f.build = n.String(m.File), n.String(m.BuildID)
	}
	return f
}

// id returns the ID of a stored frame.
func (f frame) id(n *digest.Names) digest.FrameID {
	s := symbol.Frame{Function: n.Strings[f.function], SystemName: n.Strings[f.system], File: n.Strings[f.file],
		Line: f.line, StartLine: f.start, Kind: f.kind, Inlined: f.inlined, Approximate: f.approximate}
	if f.mapped != 0 || f.build != 0 {
		s.Mapping = unique.Make(symbol.Mapping{File: n.Strings[f.mapped], BuildID: n.Strings[f.build]})
	}
	return n.Frame(symbol.Intern(s))
}

// lostFrame is the frame that stands for those in damaged parts of a segment.
func lostFrame(n *digest.Names) digest.FrameID {
	return n.Frame(symbol.Intern(symbol.Frame{Function: lostName, SystemName: lostName, Kind: symbol.KindMarker}))
}

// tables are the names in a segment, each once, in the order in which windows referred to them
// first. References in the segment are places in its tables.
type tables struct {
	names   *digest.Names // names in the windows that are written or read
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

func newTables(n *digest.Names) *tables { return &tables{names: n} }

// full reports whether a segment has as many names as it should.
func (t *tables) full() bool {
	return len(t.names.Strings) > maxStrings/4 || len(t.names.Frames) > maxFrames/4 || t.names.Text > maxText/4
}

// tooMany reports whether readers would refuse the names.
func (t *tables) tooMany() bool {
	return len(t.strings) > maxStrings || len(t.frames) > maxFrames || t.text > maxText
}

// placeString returns the place of a string, which is added if need be.
func (t *tables) placeString(id digest.StringID) digest.StringID {
	for int(id) >= len(t.stringAt) {
		t.stringAt = append(t.stringAt, make([]uint32, len(t.names.Strings)-len(t.stringAt))...)
	}
	if t.stringAt[id] == 0 {
		s := t.names.Strings[id]
		t.strings = append(t.strings, s)
		t.text += len(s)
		t.stringAt[id] = uint32(len(t.strings))
	}
	return digest.StringID(t.stringAt[id] - 1)
}

// placeFrame returns the place of a frame, which is added if need be.
func (t *tables) placeFrame(id digest.FrameID) int {
	for int(id) >= len(t.frameAt) {
		t.frameAt = append(t.frameAt, make([]uint32, len(t.names.Frames)-len(t.frameAt))...)
	}
	if t.frameAt[id] == 0 {
		t.frames = append(t.frames, frameOf(t.names, id))
		t.frameAt[id] = uint32(len(t.frames))
	}
	return int(t.frameAt[id] - 1)
}

// stringFrom returns the string at a place, which must exist.
func (t *tables) stringFrom(place digest.StringID) digest.StringID {
	if t.stringAt[place] == 0 {
		t.stringAt[place] = uint32(t.names.String(t.strings[place])) + 1
	}
	return digest.StringID(t.stringAt[place] - 1)
}

// frameFrom returns the frame at a place, which must exist.
func (t *tables) frameFrom(place int) digest.FrameID {
	if t.frameAt[place] == 0 {
		t.frameAt[place] = uint32(t.frames[place].with(t.stringFrom).id(t.names)) + 1
	}
	return digest.FrameID(t.frameAt[place] - 1)
}

// with returns a frame with other strings.
func (f frame) with(other func(digest.StringID) digest.StringID) frame {
	for _, s := range []*digest.StringID{&f.function, &f.system, &f.file, &f.mapped, &f.build} {
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
		t.frames, t.frameAt = append(t.frames, frame{}), append(t.frameAt, uint32(lostFrame(t.names))+1)
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
		w.stringAt = placed(w.stringAt, int(t.stringFrom(digest.StringID(place))), place)
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
