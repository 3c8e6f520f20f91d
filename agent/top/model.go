package top

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Bounds of a Model.
const (
	MaxAge     = 6 * time.Minute // of windows
	maxWindows = 1024
	maxRows    = 4096 // of one kind, of a service in a window: the lightest beyond that are summed up as others
	others     = "[others]"
)

// A Model holds the windows of the last minutes. Its methods are for one goroutine at a time.
type Model struct {
	cpus    int
	windows []*window // the oldest first
}

// NewModel returns a model without windows, of a machine with so many CPUs.
func NewModel(cpus int) *Model { return &Model{cpus: cpus} }

// A window is what is kept of a profile.
type window struct {
	end      time.Time
	length   time.Duration
	recorded recorded
	services map[string]*service
}

// recorded is for how long each kind of events was recorded.
type recorded [profile.EventKinds]time.Duration

// A service is what processes of the same name did in some time.
type service struct {
	pids    map[int]bool
	period  time.Duration // CPU time of a sample
	code    [profile.CodeKinds]uint64
	methods map[string]*row
	threads map[string]*row
	events  [profile.EventKinds]map[string]*row // by class, or what else says most of the kind
	values  [profile.EventKinds]float64         // main values in all
}

// A row is one line of a table, before it is made one: values in samples, or in the main value of a kind of events.
type row struct {
	self, total float64
	observed    float64            // samples or events, which the error of self comes from
	callers     map[string]float64 // of self
}

func newService() *service {
	return &service{pids: map[int]bool{}, methods: map[string]*row{}, threads: map[string]*row{}}
}

// Add appends a window and forgets those that are too old.
func (m *Model) Add(p *profile.Profile) {
	w := &window{end: p.Start.Add(p.Duration), length: p.Duration, services: map[string]*service{}}
	for _, process := range p.Processes {
		name := cmp.Or(process.Service, process.Comm)
		s := w.services[name]
		if s == nil {
			s = newService()
			w.services[name] = s
		}
		s.period = p.Period
		s.add(process)
	}
	for _, s := range w.services {
		s.bound()
	}
	m.windows = append(m.windows, w)
	m.windows = slices.DeleteFunc(m.windows, func(old *window) bool { return w.end.Sub(old.end) > MaxAge })
	if over := len(m.windows) - maxWindows; over > 0 {
		m.windows = slices.Delete(m.windows, 0, over)
	}
}

// AddEvents adds events that were recorded apart to the last window.
func (m *Model) AddEvents(p *profile.Profile) {
	if len(m.windows) == 0 {
		return
	}
	w := m.windows[len(m.windows)-1]
	for kind := range w.recorded {
		if slices.ContainsFunc(p.Processes, func(p *profile.Process) bool {
			return slices.ContainsFunc(p.Events, func(e *profile.Events) bool { return int(e.Kind) == kind })
		}) {
			w.recorded[kind] += p.Duration
		}
	}
	for _, process := range p.Processes {
		name := cmp.Or(process.Service, process.Comm)
		if w.services[name] == nil {
			w.services[name] = newService()
		}
		for _, e := range process.Events {
			w.services[name].addEvents(e)
		}
		w.services[name].bound()
	}
}

func (s *service) add(p *profile.Process) {
	s.pids[p.PID] = true
	for kind, n := range p.ByCode() {
		s.code[kind] += n
	}
	for _, t := range p.Threads {
		if t.Tree == nil || t.Tree.Total() == 0 {
			continue
		}
		add(s.threads, ThreadGroup(t.Name), float64(t.Tree.Total()), float64(t.Tree.Total()))
		s.addTree(t.Tree)
	}
	for _, e := range p.Events {
		s.addEvents(e)
	}
}

// addTree adds the samples of a thread by method.
func (s *service) addTree(tree *cct.Tree[symbolize.Symbol]) {
	name := func(symbol symbolize.Symbol) string { return symbol.Value().Function }
	for _, e := range cct.Hot(tree, name) {
		r := rowOf(s.methods, e.Key)
		r.self += float64(e.Self)
		r.observed += float64(e.Self)
		r.total += float64(e.Total)
	}
	for id, n := range tree.Nodes() {
		if id == cct.Root || n.Self == 0 {
			continue
		}
		r := rowOf(s.methods, name(n.Key))
		if n.Parent != cct.Root {
			r.call(name(tree.Node(n.Parent).Key), float64(n.Self))
		}
	}
}

// addEvents adds events by class, operation or method, whatever says most of their kind.
func (s *service) addEvents(e *profile.Events) {
	if s.events[e.Kind] == nil {
		s.events[e.Kind] = map[string]*row{}
	}
	main := e.Kind.Main()
	for i := range e.Rows {
		r := &e.Rows[i]
		if e.Kind.Apart(&r.EventLabels) {
			continue
		}
		value := r.Values[main]
		s.values[e.Kind] += value
		stack := e.Tree.Stack(r.Context)
		key := cmp.Or(r.Class, r.What)
		if key == "" && len(stack) > 0 {
			key = stack[0].Value().Function
		}
		if key == "" {
			key = symbolize.Unknown
		}
		line := add(s.events[e.Kind], key, value, float64(r.Events))
		if at := slices.IndexFunc(stack, func(f symbolize.Symbol) bool { return guest(f.Value().Kind) }); at >= 0 {
			line.call(stack[at].Value().Function, value)
		}
	}
}

func guest(k symbolize.Kind) bool { return profile.CodeOf(k) == profile.GuestCode }

func rowOf(rows map[string]*row, key string) *row {
	r := rows[key]
	if r == nil {
		r = &row{}
		rows[key] = r
	}
	return r
}

func add(rows map[string]*row, key string, value, observed float64) *row {
	r := rowOf(rows, key)
	r.self, r.total, r.observed = r.self+value, r.total+value, r.observed+observed
	return r
}

func (r *row) call(caller string, value float64) {
	if r.callers == nil {
		r.callers = map[string]float64{}
	}
	r.callers[caller] += value
}

// bound sums up the lightest rows where there are too many.
func (s *service) bound() {
	for _, rows := range append([]map[string]*row{s.methods, s.threads}, s.events[:]...) {
		if len(rows) <= maxRows {
			continue
		}
		keys := slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
			return cmp.Or(cmp.Compare(rows[b].self, rows[a].self), cmp.Compare(rows[b].total, rows[a].total), strings.Compare(a, b))
		})
		for _, key := range keys[maxRows-1:] {
			light := rows[key]
			delete(rows, key)
			add(rows, others, light.self, light.observed)
		}
	}
}

func (s *service) merge(o *service) {
	maps.Copy(s.pids, o.pids)
	s.period = max(s.period, o.period) // windows of events have none
	for kind, n := range o.code {
		s.code[kind] += n
	}
	merge(s.methods, o.methods)
	merge(s.threads, o.threads)
	for kind, rows := range o.events {
		if rows != nil && s.events[kind] == nil {
			s.events[kind] = map[string]*row{}
		}
		merge(s.events[kind], rows)
		s.values[kind] += o.values[kind]
	}
}

func merge(into, from map[string]*row) {
	for key, r := range from {
		sum := rowOf(into, key)
		sum.self, sum.total, sum.observed = sum.self+r.self, sum.total+r.total, sum.observed+r.observed
		for caller, value := range r.callers {
			sum.call(caller, value)
		}
	}
}

// samples is how many samples there are in all.
func (s *service) samples() (sum float64) {
	for _, n := range s.code {
		sum += float64(n)
	}
	return sum
}

// cpu is the CPU time.
func (s *service) cpu() time.Duration { return time.Duration(s.samples() * float64(s.period)) }

// A span is the sum of some windows.
type span struct {
	length   time.Duration
	recorded recorded
	services map[string]*service
}

// sum adds up the windows that ended at most so long ago, but not before age.
func (m *Model) sum(length, age time.Duration) *span {
	sum := &span{services: map[string]*service{}}
	if len(m.windows) == 0 {
		return sum
	}
	now := m.windows[len(m.windows)-1].end
	for _, w := range m.windows {
		if old := now.Sub(w.end); old < age || old+w.length/2 >= age+length { // windows are not exactly as long as they should be
			continue
		}
		sum.length += w.length
		for kind, length := range w.recorded {
			sum.recorded[kind] += length
		}
		for name, s := range w.services {
			if sum.services[name] == nil {
				sum.services[name] = newService()
			}
			sum.services[name].merge(s)
		}
	}
	return sum
}

// names are the services, those with most CPU time first.
func (s *span) names() []string {
	return slices.SortedFunc(maps.Keys(s.services), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.services[b].cpu(), s.services[a].cpu()), strings.Compare(a, b))
	})
}

// load is the CPU time of a service in each of the last windows, in CPUs, the oldest first; 0 where there was none.
func (m *Model) load(name string, n int) []float64 {
	loads := make([]float64, 0, n)
	for _, w := range m.windows[max(len(m.windows)-n, 0):] {
		var cpus float64
		if s := w.services[name]; s != nil && w.length > 0 {
			cpus = s.cpu().Seconds() / w.length.Seconds()
		}
		loads = append(loads, cpus)
	}
	return loads
}

// busiest is the caller with most of a row, "" if there is none.
func (r *row) busiest() (caller string) {
	for name, value := range r.callers {
		if most := r.callers[caller]; caller == "" || value > most || value == most && name < caller {
			caller = name
		}
	}
	return caller
}

// within is half of the 95 % confidence interval of the share that a row has of n observations, in percentage points: Wilson's score
// interval, its longer half, of observations that do not depend on each other.
func within(share, n float64) float64 {
	const z = 1.96
	if n <= 0 {
		return math.NaN()
	}
	middle := (share + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	return 100 * max(middle+half-share, share-middle+half)
}

// ThreadGroup is the name of a thread without what tells the threads of a pool apart: numbers become a star.
func ThreadGroup(name string) string {
	var b strings.Builder
	digits := false
	for _, r := range name {
		if r >= '0' && r <= '9' {
			if !digits {
				b.WriteByte('*')
			}
			digits = true
			continue
		}
		digits = false
		b.WriteRune(r)
	}
	return b.String()
}
