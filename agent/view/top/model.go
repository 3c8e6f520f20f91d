// Package top is what the verb top shows: a Model of the last five minutes, and a Screen that turns
// it and the user's keys into lines. Neither knows a terminal or an agent, so that tests write
// windows by hand and read lines.
//
//	model := top.NewModel(runtime.NumCPU())
//	screen := top.NewScreen(model)
//	model.Observe(window)            // every two seconds
//	lines := screen.Lines(80, 24)    // to draw
//	command := screen.Press(top.Key{Rune: 'a'})
package top

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Keep is how far back a Model goes.
const Keep = 5 * time.Minute

// Bounds of a Model. Windows of two seconds make 150 in five minutes.
const (
	maxWindows  = 300     // windows of each kind, whatever their length
	maxServices = 256     // services of a window; others are aggregated
	maxCells    = 1 << 13 // cells of a window, each 48 bytes: sums by thread, method and caller, or by class
	// maxNodes bounds the nodes of the trees of all windows, each about 50 bytes. Beyond it, the
	// oldest windows keep their sums only.
	maxNodes = 1 << 20
)

// other stands for what found no room of its own.
const other = "(other)"

// text is an interned string: one word, which is freed once nobody has it.
type text = unique.Handle[string]

// A method is a row of a table: the function of a frame, whatever its line and its version.
type method = unique.Handle[methodName]

type methodName struct {
	name string
	code profile.CodeKind
}

// A Model holds the windows of the last five minutes: sums of all of them, and the whole profiles
// as far as there is room. One goroutine uses it.
type Model struct {
	cpus   int
	cpu    []*window                     // oldest first
	events [profile.EventKinds][]*window // windows of kinds that were recorded for a while
	names  map[symbol.Symbol]method      // names in the window that is being added
	groups map[string]text               // groups of its threads
	paused bool                          // windows are not added
	nodes  int                           // nodes of all kept trees
	lost   uint64                        // samples of the last window that the kernel dropped
}

// NewModel returns an empty model of a machine with so many CPUs.
func NewModel(cpus int) *Model { return &Model{cpus: max(cpus, 1)} }

// A window is one closed window.
type window struct {
	start, end time.Time
	observed   time.Duration // for an event kind: time in which it was observed; otherwise the length
	period     time.Duration
	services   []serviceSums // ordered by name
	cells      []cell
	profile    *profile.Profile // nil once the model has no room for it
	nodes      int
}

// serviceSums are the sums of one service in one window.
type serviceSums struct {
	name      text
	processes int
	managed   bool                       // a VM runs in one of them, so that there may be events
	code      [profile.CodeKinds]float64 // CPU time in ns, by kind of code
	samples   uint64
	stopped   time.Duration // time in safepoint pauses, of all processes
	hasPauses bool          // the VM's pauses are recorded
	main      float64       // for an event kind: the main value
	queued    float64       // for off-CPU time: the part in which threads waited for a CPU, ns
}

// cpu is the service's CPU time in ns.
func (s *serviceSums) cpu() (sum float64) {
	for _, ns := range s.code {
		sum += ns
	}
	return sum
}

// A cell is a sum of samples or events.
type cell struct {
	service        text
	thread         text   // the name of its group; of events, the class
	method, caller method // zero: none
	n              uint64 // samples or observed events
	value          float64
}

type cellKey struct {
	service, thread text
	method, caller  method
}

// Observe adds a window of CPU time, unless the model is paused.
func (m *Model) Observe(p *profile.Profile) {
	if m.paused {
		return
	}
	w := m.newWindow(p)
	sums := newSums()
	for _, process := range p.Processes {
		s := sums.service(process)
		for kind, ns := range process.ByCode(p.Period) {
			s.code[kind] += ns
		}
		for _, events := range process.Events {
			if events.Kind != profile.Pauses {
				continue
			}
			s.hasPauses = true
			for _, row := range events.Rows {
				s.stopped += time.Duration(row.Values[profile.Pauses.Main()])
			}
		}
		for _, thread := range process.Threads {
			if thread.Tree == nil {
				continue
			}
			w.nodes += thread.Tree.Len()
			s.samples += thread.Tree.Total()
			group := m.group(thread.Name)
			for id, n := range thread.Tree.Nodes() {
				if n.Self > 0 {
					sums.add(cellKey{s.name, group, m.method(thread.Tree, id), m.caller(thread.Tree, id)}, n.Self, 0)
				}
			}
		}
	}
	sums.finish(w)
	m.lost = p.Counts.DroppedTotal()
	m.cpu = m.push(m.cpu, w)
}

// ObserveEvents adds a window of one kind of events, unless the model is paused.
func (m *Model) ObserveEvents(kind profile.EventKind, p *profile.Profile) {
	if m.paused {
		return
	}
	w := m.newWindow(p)
	sums := newSums()
	for _, process := range p.Processes {
		for _, events := range process.Events {
			if events.Kind != kind {
				continue
			}
			s := sums.service(process)
			w.nodes += events.Tree.Len() + 4*len(events.Rows)
			for _, row := range events.Rows {
				if kind.Apart(&row.EventLabels) || kind == profile.OffCPU && row.What == cause.Idle {
					continue
				}
				value := row.Values[kind.Main()]
				s.main += value
				if kind == profile.OffCPU && (row.What == cause.Runnable || row.What == cause.Throttled) {
					s.queued += value
				}
				label := unique.Make(stored.Printable(cmp.Or(row.Class, row.What)))
				at := row.Context
				if kind == profile.OffCPU || kind == profile.Locks {
					at = m.program(events.Tree, at)
				}
				sums.add(cellKey{s.name, label, m.method(events.Tree, at), m.caller(events.Tree, at)}, row.Events,
					value)
			}
		}
	}
	sums.finish(w)
	m.events[kind] = m.push(m.events[kind], w)
}

func (m *Model) newWindow(p *profile.Profile) *window {
	m.names, m.groups = map[symbol.Symbol]method{}, map[string]text{}
	return &window{start: p.Start, end: p.Start.Add(p.Duration), observed: p.Duration, period: p.Period, profile: p}
}

// push appends a window, and forgets what is too old or too much.
func (m *Model) push(windows []*window, w *window) []*window {
	m.nodes += w.nodes
	windows = append(windows, w)
	old := 0
	for old < len(windows)-1 && (w.end.Sub(windows[old].start) > Keep || len(windows)-old > maxWindows) {
		m.release(windows[old])
		old++
	}
	windows = slices.Delete(windows, 0, old)
	m.expire(w.end)
	return windows
}

// expire forgets old windows of events that are no longer recorded, and profiles that there is no
// room for.
func (m *Model) expire(now time.Time) {
	var all []*window
	for kind, windows := range m.events {
		n := 0
		for n < len(windows) && now.Sub(windows[n].start) > Keep {
			m.release(windows[n])
			n++
		}
		m.events[kind] = slices.Delete(windows, 0, n)
		all = append(all, m.events[kind]...)
	}
	if m.nodes <= maxNodes {
		return
	}
	all = append(all, m.cpu...)
	slices.SortFunc(all, func(a, b *window) int { return a.start.Compare(b.start) })
	for _, w := range all {
		if m.nodes <= maxNodes {
			return
		}
		m.release(w)
	}
}

// release drops the profile of a window.
func (m *Model) release(w *window) {
	m.nodes -= w.nodes
	w.nodes, w.profile = 0, nil
}

// sums are the sums of a window that is being added.
type sums struct {
	services map[text]*serviceSums
	cells    map[cellKey]*cell
}

func newSums() *sums { return &sums{map[text]*serviceSums{}, map[cellKey]*cell{}} }

// service returns the sums of the process's service.
func (s *sums) service(p *profile.Process) *serviceSums {
	name := unique.Make(serviceOf(p))
	if s.services[name] == nil && len(s.services) >= maxServices {
		name = unique.Make(other)
	}
	of := s.services[name]
	if of == nil {
		of = &serviceSums{name: name}
		s.services[name] = of
	}
	of.processes++
	of.managed = of.managed || p.Runtime != ""
	return of
}

// serviceOf is the service of a process for display.
func serviceOf(p *profile.Process) string {
	return stored.Printable(cmp.Or(p.Service, p.Comm, stored.Unnamed))
}

func (s *sums) add(key cellKey, n uint64, value float64) {
	c := s.cells[key]
	if c == nil && len(s.cells) >= maxCells {
		rest := unique.Make(methodName{name: other})
		key = cellKey{key.service, unique.Make(other), rest, method{}}
		c = s.cells[key]
	}
	if c == nil {
		c = &cell{service: key.service, thread: key.thread, method: key.method, caller: key.caller}
		s.cells[key] = c
	}
	c.n += n
	c.value += value
}

// finish stores the sums in the window.
func (s *sums) finish(w *window) {
	for _, of := range s.services {
		w.services = append(w.services, *of)
	}
	slices.SortFunc(w.services, func(a, b serviceSums) int { return strings.Compare(a.name.Value(), b.name.Value()) })
	w.cells = make([]cell, 0, len(s.cells))
	for _, c := range s.cells {
		w.cells = append(w.cells, *c)
	}
}

// method is the function of a context's innermost frame.
func (m *Model) method(tree *cct.Tree[symbol.Symbol], id cct.NodeID) method {
	if id == cct.Root {
		return unique.Make(methodName{stored.Unnamed, profile.NativeCode})
	}
	return m.named(tree.Node(id).Key)
}

// program is the context of the application's innermost method, as those of the class library only
// say how a thread waits; or of the class library's that does not even say that; or of the
// innermost frame if there is none.
func (m *Model) program(tree *cct.Tree[symbol.Symbol], id cct.NodeID) cct.NodeID {
	library := cct.Root
	for at := id; at != cct.Root; at = tree.Node(at).Parent {
		of := m.named(tree.Node(at).Key).Value()
		switch {
		case of.code != profile.GuestCode, strings.HasPrefix(of.name, "["):
		case !profile.InLibrary(of.name, tree.Node(at).Key.Value().File):
			return at
		case library == cct.Root && !cause.Waits(of.name):
			library = at
		}
	}
	if library != cct.Root {
		return library
	}
	return id
}

// caller is the function of the next outer frame that has another name; zero if there is none.
func (m *Model) caller(tree *cct.Tree[symbol.Symbol], id cct.NodeID) method {
	if id == cct.Root {
		return method{}
	}
	self := m.method(tree, id)
	for id = tree.Node(id).Parent; id != cct.Root; id = tree.Node(id).Parent {
		if of := m.named(tree.Node(id).Key); of != self {
			return of
		}
	}
	return method{}
}

// named is the function of a frame. Without a name it is the file.
func (m *Model) named(s symbol.Symbol) method {
	if of, known := m.names[s]; known {
		return of
	}
	frame := s.Value()
	name := stored.Printable(frame.Function)
	if frame.Function == symbol.Unknown && frame.Mapping != (unique.Handle[symbol.Mapping]{}) {
		if file := frame.Mapping.Value().File; file != "" {
			name += " " + stored.Printable(path.Base(file))
		}
	}
	of := unique.Make(methodName{name, profile.CodeOf(frame.Kind)})
	m.names[s] = of
	return of
}

// group is the name of a thread's group.
func (m *Model) group(name string) text {
	if of, known := m.groups[name]; known {
		return of
	}
	of := unique.Make(stored.Printable(stored.ThreadGroup(name)))
	m.groups[name] = of
	return of
}
