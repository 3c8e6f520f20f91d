package history

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Bounds of what is read back.
const (
	maxName    = 1024    // bytes of a name; longer ones are cut when they are stored
	maxStrings = 1 << 19 // in a segment
	maxFrames  = 1 << 18
	maxText    = 32 << 20 // bytes of all strings of a segment
	maxCauses  = 64       // of a loss
)

// errMalformed is the error for anything that no writer writes.
var errMalformed = errors.New("malformed record")

// tables are the names in a segment, each once. References to them are their places.
type tables struct {
	strings []string
	frames  []symbolize.Symbol
	text    int // bytes of all strings
	// Of writers only:
	stringIDs map[string]int
	frameIDs  map[symbolize.Symbol]int
}

func newTables() *tables {
	return &tables{stringIDs: make(map[string]int), frameIDs: make(map[symbolize.Symbol]int)}
}

// full reports whether a segment has as many names as it should.
func (t *tables) full() bool {
	return len(t.strings) > maxStrings/4 || len(t.frames) > maxFrames/4 || t.text > maxText/4
}

// forget takes back the names that were added since there were so many.
func (t *tables) forget(strings, frames int) {
	for _, s := range t.strings[strings:] {
		delete(t.stringIDs, s)
		t.text -= len(s)
	}
	for _, f := range t.frames[frames:] {
		delete(t.frameIDs, f)
	}
	t.strings, t.frames = t.strings[:strings], t.frames[:frames]
}

// A codec writes or reads a window: the same code does both, so that they agree. After an error it does nothing.
type codec struct {
	reads  bool
	buf    []byte // what was written, or what is to be read
	tables *tables
	want   *Selection // readers: what is wanted; nil for everything
	items  int        // readers: contexts, rows and edges so far
	err    error
}

// maxItems bounds contexts, rows and edges of a window: of all kinds, with the frames that stand for rare ones.
const maxItems = 1 << 20

// more counts items, which take more memory than bytes in a record.
func (c *codec) more(n int) {
	if c.items += n; c.reads && c.items > maxItems {
		c.fail()
	}
}

func (c *codec) fail() { c.err = errMalformed }

// u is an unsigned number.
func (c *codec) u(p *uint64) {
	if c.err != nil {
		return
	}
	if !c.reads {
		c.buf = binary.AppendUvarint(c.buf, *p)
		return
	}
	v, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.fail()
		return
	}
	*p, c.buf = v, c.buf[n:]
}

// number is a number of any type.
func number[T ~int | ~int8 | ~int32 | ~int64](c *codec, p *T) {
	v := uint64(int64(*p)<<1) ^ uint64(int64(*p)>>63)
	c.u(&v)
	if c.reads && c.err == nil {
		n := int64(v>>1) ^ -int64(v&1)
		if int64(T(n)) != n {
			c.fail()
			return
		}
		*p = T(n)
	}
}

// small is a number from 0 to most.
func small[T ~uint8](c *codec, p *T, most T) {
	v := uint64(*p)
	c.u(&v)
	if c.reads && c.err == nil {
		if v > uint64(most) {
			c.fail()
			return
		}
		*p = T(v)
	}
}

// float is short for whole numbers: the bytes that they leave 0 come last.
func (c *codec) float(p *float64) {
	v := bits.ReverseBytes64(math.Float64bits(*p))
	c.u(&v)
	if c.reads {
		*p = math.Float64frombits(bits.ReverseBytes64(v))
		if math.IsNaN(*p) {
			*p = 0
		}
	}
}

func (c *codec) flag(p *bool) {
	v := uint64(0)
	if *p {
		v = 1
	}
	c.u(&v)
	if c.reads {
		*p = v == 1
	}
}

// length is the length of a list: at most so many elements, of which each takes at least a byte.
func (c *codec) length(n, most int) int {
	v := uint64(min(n, most))
	c.u(&v)
	if c.err != nil {
		return 0
	}
	if c.reads && v > uint64(min(most, len(c.buf))) {
		c.fail()
		return 0
	}
	return int(v)
}

// list is a list of what each writes or reads. Of longer lists the first elements are written.
func list[T any](c *codec, p *[]T, most int, each func(*T)) {
	n := c.length(len(*p), most)
	if c.reads && n > 0 {
		*p = make([]T, n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		each(&(*p)[i])
	}
}

// str is a reference to a string.
func (c *codec) str(p *string) {
	if !c.reads {
		id := uint64(c.tables.stringID(*p))
		c.u(&id)
		return
	}
	var id uint64
	if c.u(&id); c.err != nil {
		return
	}
	if id >= uint64(len(c.tables.strings)) {
		c.fail()
		return
	}
	*p = c.tables.strings[id]
}

func (t *tables) stringID(s string) int {
	if len(s) > maxName {
		s = symbolize.Printable(s, maxName)
	}
	id, known := t.stringIDs[s]
	if !known {
		id = len(t.strings)
		t.stringIDs[s] = id
		t.strings = append(t.strings, s)
		t.text += len(s)
	}
	return id
}

// frame is a reference to a frame, as the difference from another one, as frames that appeared together often occur together.
func (c *codec) frame(p *symbolize.Symbol, last *int) {
	if !c.reads {
		id, known := c.tables.frameIDs[*p]
		if !known {
			id = len(c.tables.frames)
			c.tables.frameIDs[*p] = id
			c.tables.frames = append(c.tables.frames, *p)
		}
		d := id - *last
		number(c, &d)
		*last = id
		return
	}
	var d int
	if number(c, &d); c.err != nil {
		return
	}
	id := *last + d
	if id < 0 || id >= len(c.tables.frames) {
		c.fail()
		return
	}
	*p, *last = c.tables.frames[id], id
}

// names are the strings and frames that are new in a segment since there were so many. Writers call it after they have written what
// refers to them; it comes first in the record.
func (c *codec) names(strings, frames int) {
	t := c.tables
	if !c.reads {
		body := c.buf
		c.buf = nil
		next := t.frames[frames:]
		list(c, &next, maxFrames, c.frameFields) // which may need further strings
		defined := c.buf
		c.buf = nil
		added := t.strings[strings:]
		list(c, &added, maxStrings, func(s *string) {
			n := c.length(len(*s), maxName)
			c.buf = append(c.buf, (*s)[:n]...)
		})
		c.buf = append(append(c.buf, defined...), body...)
		return
	}
	var added []string
	list(c, &added, maxStrings-len(t.strings), func(s *string) {
		n := c.length(0, maxName)
		if t.text += n; t.text > maxText {
			c.fail()
			return
		}
		*s, c.buf = string(c.buf[:n]), c.buf[n:]
	})
	if c.err != nil {
		return
	}
	t.strings = append(t.strings, added...)
	var next []symbolize.Symbol
	if list(c, &next, maxFrames-len(t.frames), c.frameFields); c.err == nil {
		t.frames = append(t.frames, next...)
	}
}

// frameFields is a frame, as storedFrame makes it.
func (c *codec) frameFields(s *symbolize.Symbol) {
	var (
		f symbolize.Frame
		m symbolize.Mapping
	)
	if !c.reads {
		f = s.Value()
		if f.Mapping != (unique.Handle[symbolize.Mapping]{}) { // the zero handle has no value
			m = f.Mapping.Value()
		}
	}
	c.str(&f.Function)
	c.str(&f.SystemName)
	c.str(&f.File)
	number(c, &f.Line)
	small(c, &f.Kind, symbolize.KindMarker)
	c.flag(&f.Inlined)
	c.flag(&f.Approximate)
	c.mapping(&m)
	if c.reads && c.err == nil {
		if m != (symbolize.Mapping{}) {
			f.Mapping = unique.Make(m)
		}
		*s = symbolize.Intern(f)
	}
}

func (c *codec) mapping(m *symbolize.Mapping) {
	c.str(&m.File)
	c.str(&m.BuildID)
}

// block is a part that readers can skip.
func (c *codec) block(wanted bool, part func()) {
	if c.err != nil {
		return
	}
	if !c.reads {
		outer := c.buf
		c.buf = nil
		part()
		inner := c.buf
		c.buf = binary.AppendUvarint(outer, uint64(len(inner)))
		c.buf = append(c.buf, inner...)
		return
	}
	n := c.length(0, math.MaxInt)
	if c.err != nil {
		return
	}
	rest := c.buf[n:]
	if wanted {
		c.buf = c.buf[:n:n]
		part()
	}
	c.buf = rest
}

// window is a window that a merger made.
func (c *codec) window(p *profile.Profile) {
	number(c, &p.Period)
	c.str(&p.Event)
	small(c, &p.Unit, profile.CallCounts)
	c.counts(&p.Counts)
	c.eventCounts(&p.EventCounts)
	list(c, &p.Comments, maxTexts, c.str)
	n := c.length(len(p.Processes), maxProcesses+1)
	for i := 0; i < n && c.err == nil; i++ {
		proc := new(profile.Process)
		if !c.reads {
			proc = p.Processes[i]
		}
		if c.process(proc) {
			p.Processes = append(p.Processes, proc)
		}
	}
	if c.reads && c.err == nil && (p.Period < 0 || p.Period > time.Hour) {
		c.fail()
	}
}

func (c *codec) counts(n *profile.Counts) {
	for _, v := range []*uint64{&n.Attempted, &n.Delivered, &n.Folded, &n.Idle, &n.Filtered, &n.Stale, &n.Unknown} {
		c.u(v)
	}
	for _, v := range []*map[string]uint64{&n.Dropped, &n.Discarded, &n.Truncated} {
		c.causes(v)
	}
}

func (c *codec) eventCounts(n *profile.EventCounts) {
	for _, v := range []*uint64{&n.Attempted, &n.Delivered, &n.Folded, &n.Hits, &n.Unattached} {
		c.u(v)
	}
	for _, v := range []*map[string]uint64{&n.Dropped, &n.Discarded} {
		c.causes(v)
	}
	number(c, &n.Cost)
}

// causes are counts by cause, without those that are 0.
func (c *codec) causes(p *map[string]uint64) {
	var keys []string
	if !c.reads {
		keys = slices.DeleteFunc(slices.Sorted(maps.Keys(*p)), func(k string) bool { return (*p)[k] == 0 })
	}
	n := c.length(len(keys), maxCauses)
	for i := 0; i < n && c.err == nil; i++ {
		var (
			key   string
			count uint64
		)
		if !c.reads {
			key, count = keys[i], (*p)[keys[i]]
		}
		c.str(&key)
		c.u(&count)
		if c.reads && c.err == nil {
			if *p == nil {
				*p = make(map[string]uint64)
			}
			(*p)[key] += count
		}
	}
}

// process is a process, and reports whether it is wanted.
func (c *codec) process(p *profile.Process) (wanted bool) {
	number(c, &p.PID)
	c.str(&p.Comm)
	c.str(&p.Runtime)
	c.str(&p.Service)
	wanted = c.want.wants(p)
	c.block(wanted, func() {
		c.str(&p.VM)
		c.mapping(&p.Executable)
		list(c, &p.Notes, maxTexts, c.str)
		c.block(c.want.has(sink.Time), func() {
			pointers(c, &p.Threads, 2*int(profile.Certainties)*(maxThreads+1), c.thread)
			c.contexts(&p.Contexts)
		})
		c.block(c.want.has(sink.CallCounts), func() { pointers(c, &p.Calls, maxTexts, c.graph) })
		pointers(c, &p.Events, int(profile.EventKinds), c.events)
	})
	if c.reads && c.err == nil {
		p.Events = slices.DeleteFunc(p.Events, func(e *profile.Events) bool { return e.Tree == nil }) // was not wanted
	}
	return wanted
}

// pointers is a list of pointers.
func pointers[T any](c *codec, p *[]*T, most int, each func(*T)) {
	list(c, p, most, func(one **T) {
		if c.reads {
			*one = new(T)
		}
		each(*one)
	})
}

func (c *codec) thread(t *profile.Thread) {
	c.str(&t.Name)
	c.flag(&t.Stopped)
	small(c, &t.Context, profile.Certainties-1)
	c.tree(&t.Tree)
}

// contexts are those of a process of which not every stack was walked.
func (c *codec) contexts(p **profile.Contexts) {
	known := *p != nil
	if c.flag(&known); !known || c.err != nil {
		return
	}
	if c.reads {
		*p = new(profile.Contexts)
	}
	x := *p
	small(c, &x.Mode, profile.ContextChain)
	for _, v := range []*uint64{&x.Walked, &x.Linked, &x.Ambiguous, &x.Fitted, &x.Unplaced} {
		c.u(v)
	}
	for i := range x.ByDepth {
		c.u(&x.ByDepth[i])
		c.u(&x.BySite[i])
	}
	number(c, &x.Nodes)
	number(c, &x.Shared)
	number(c, &x.Methods)
}

// tree is a calling context tree, one field of all contexts after the other: like next to like compresses well. Readers return the places of
// the stored contexts.
func (c *codec) tree(p **cct.Tree[symbolize.Symbol]) (place []cct.NodeID) {
	t := *p
	nodes := 0
	if !c.reads {
		nodes = t.Len()
	}
	nodes = c.length(nodes, 4*maxContexts)
	if c.more(nodes); c.err != nil {
		return nil
	}
	var (
		parents = make([]int, nodes+1)
		frames  = make([]symbolize.Symbol, nodes+1)
		self    = make([]uint64, nodes+1)
		entered = make([]uint64, nodes+1)
		any     bool
	)
	if !c.reads {
		for id, n := range t.Nodes() {
			if int(id) > nodes {
				break
			}
			parents[id], frames[id], self[id], entered[id] = int(n.Parent), n.Key, n.Self, n.Entered
			any = any || n.Entered > 0
		}
	}
	for id := 1; id <= nodes; id++ {
		up := uint64(id - parents[id])
		if c.u(&up); c.err == nil && (up == 0 || up > uint64(id)) {
			c.fail()
		}
		parents[id] = id - int(up)
	}
	last := 0
	for id := 1; id <= nodes; id++ {
		c.frame(&frames[id], &last)
	}
	for id := 0; id <= nodes; id++ {
		c.u(&self[id])
	}
	c.flag(&any)
	for id := 1; any && id <= nodes; id++ {
		c.u(&entered[id])
	}
	if !c.reads || c.err != nil {
		return nil
	}
	t = new(cct.Tree[symbolize.Symbol])
	t.Add(nil, self[0])
	place = make([]cct.NodeID, nodes+1)
	for id := 1; id <= nodes; id++ {
		place[id] = t.AddBelow(place[parents[id]], frames[id], self[id], entered[id])
	}
	*p = t
	return place
}

func (c *codec) events(e *profile.Events) {
	small(c, &e.Kind, profile.EventKinds-1)
	if c.err != nil {
		return
	}
	c.block(c.want.has(sink.OfEvents(e.Kind)), func() {
		place := c.tree(&e.Tree)
		list(c, &e.Rows, 2*maxContexts, func(r *profile.EventRow) {
			c.more(1)
			context := uint64(r.Context)
			c.u(&context)
			if c.reads && c.err == nil {
				if context >= uint64(len(place)) {
					c.fail()
					return
				}
				r.Context = place[context]
			}
			for _, s := range []*string{&r.Thread, &r.Class, &r.Place, &r.What, &r.Collector, &r.Field, &r.Probe, &r.Value} {
				c.str(s)
			}
			number(c, &r.Offset)
			c.u(&r.Events)
			for i := range e.Kind.Values() {
				c.float(&r.Values[i])
			}
		})
		list(c, &e.Basis, maxTexts, c.str)
		known := e.Coverage != nil
		if c.flag(&known); !known || c.err != nil {
			return
		}
		if c.reads {
			e.Coverage = new(profile.Coverage)
		}
		v := e.Coverage
		for _, d := range []*time.Duration{&v.Time, &v.Observed, &v.Missed} {
			number(c, d)
		}
		number(c, &v.Slices)
		c.u(&v.Events)
		for _, f := range []*float64{&v.Lost, &v.Drawn, &v.Cut, &v.Chosen, &v.Bias} {
			c.float(f)
		}
	})
}

// graph is a call graph. Its edges are written in the order of the graph's map: which one does not matter.
func (c *codec) graph(g *profile.Calls) {
	c.str(&g.Engine)
	small(c, &g.Basis, profile.Unmeasured)
	number(c, &g.Rate.Hz)
	number(c, &g.Rate.Stride)
	number(c, &g.Rate.Samples)
	type edge struct {
		profile.Edge
		weight float64
		within *profile.Interval
	}
	var edges []edge
	if !c.reads {
		for e, w := range g.Graph.Edges() {
			one := edge{Edge: e, weight: w}
			if within, ok := g.Intervals[e]; ok {
				one.within = &within
			}
			edges = append(edges, one)
		}
	}
	last := 0
	list(c, &edges, maxContexts, func(e *edge) {
		c.more(1)
		c.frame(&e.Caller, &last)
		c.frame(&e.Callee, &last)
		number(c, &e.Site.Line)
		number(c, &e.Site.Offset)
		c.float(&e.weight)
		known := e.within != nil
		if c.flag(&known); known && c.err == nil {
			if c.reads {
				e.within = new(profile.Interval)
			}
			c.float(&e.within.Low)
			c.float(&e.within.High)
		}
	})
	if !c.reads || c.err != nil {
		return
	}
	g.Graph = &profile.Graph{Limit: maxContexts}
	for _, e := range edges {
		g.Graph.Add(e.Edge, max(e.weight, 0))
		if e.within == nil {
			continue
		}
		if g.Intervals == nil {
			g.Intervals = make(map[profile.Edge]profile.Interval)
		}
		g.Intervals[e.Edge] = *e.within
	}
}
