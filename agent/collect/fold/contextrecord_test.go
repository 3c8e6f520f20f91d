package fold

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

type (
	identity = foldtest.Identity
	record   = foldtest.Record
)

// A contextState folds records in one mode, without a kernel side. It keeps what it would have sent
// there.
type contextState struct {
	t        testing.TB
	opt      JoinOptions
	owner    *Owner
	resolver *guest.Resolver // without workers
	rates    rateMap
	known    map[uint64]bool // link tags as the kernel side would have them, and whether they are steady
}

func (a *contextState) setSteady(tag uint64, steady bool) error {
	a.known[tag&^bpf.LinkSteady] = steady
	return nil
}

type rateMap map[uint32][]bpf.ChainRate // by slot, the last one is in force

func (m rateMap) Put(key, value any) error {
	slot := key.(uint32)
	m[slot] = append(m[slot], value.(bpf.ChainRate))
	return nil
}

func (m rateMap) last(slot uint32) (r bpf.ChainRate) {
	if n := len(m[slot]); n > 0 {
		r = m[slot][n-1]
	}
	return r
}

func newContextState(t testing.TB, opt JoinOptions) (*contextState, *Window) {
	log := slog.New(slog.DiscardHandler)
	opt.Log = log
	a := &contextState{t: t, opt: opt, resolver: guest.NewResolver(guest.Config{Log: log}), rates: rateMap{},
		known: map[uint64]bool{}}
	a.own(a.rates, a.setSteady)
	return a, a.openForTest()
}

// own begins with a new State.
func (a *contextState) own(rates interface{ Put(key, value any) error }, setSteady func(uint64, bool) error) {
	opt := a.opt
	opt.Rates, opt.SetSteady = rates, setSteady
	a.owner = NewOwner(NewState(StateOptions{
		Join: opt, MaxContexts: 1 << 20, Submit: func(p *guest.Process) { a.resolver.Submit(p) },
	}), func(err error) { panic(err) })
}

// state returns the State without a loan: nothing else runs in these tests.
func (a *contextState) state() (s *State) {
	a.owner.Do(func(own *State) { s = own })
	return s
}

func (a *contextState) openForTest() *Window {
	w := NewWindow(nil)
	a.state().Open(w)
	return w
}

// release forgets a window.
func (a *contextState) release(w *Window) { a.owner.Release(w) }

// place gives the samples that wait in a closed window their contexts.
func (a *contextState) place(w *Window) {
	a.owner.PlaceAll(w, func(_ *Process, do func()) error { do(); return nil })
}

// fold folds a record.
func (a *contextState) fold(raw []byte) { fold(a.state(), raw) }

// fold folds a record as the drainer of an agent does.
func fold(s *State, raw []byte) {
	switch kind := bpf.Kind(raw); kind {
	case bpf.EventSample:
		var sample bpf.Sample
		s.Samples++
		if err := bpf.DecodeSample(raw, &sample); err != nil {
			s.Discard(profile.Malformed)
			return
		}
		s.Take(s.Process(sample.Header), &sample)
	case bpf.EventCodeLoad:
		var l bpf.CodeLoad
		if err := bpf.DecodeCodeLoad(raw, &l); err == nil {
			s.Loaded(&l)
		}
	case bpf.EventProcessExec, bpf.EventProcessExit:
		if e, err := bpf.DecodeProcess(raw); err == nil && kind == bpf.EventProcessExec {
			s.Executed(e)
		} else if err == nil {
			s.Ended(&e.Header)
		}
	}
}

var java = identity{PID: 100, Start: 5, Exec: 1}

// attach makes java run a VM that is attached with this serial number.
func (a *contextState) attach(serial uint32) *Process {
	p := a.state().Process(&bpf.Header{Pid: java.PID, Start: java.Start, Exec: java.Exec})
	p.Slot.Store(serial % bpf.MaxAttached)
	p.Attachment.Store(serial)
	return p
}

func (a *contextState) feed(r record) {
	a.owner.Do(func(s *State) { fold(s, r.Encode()) }) // as the drainer does
}

// walked feeds a walk of a thread of java, that many times.
func (a *contextState) walked(user string, times int) {
	for range times {
		a.feed(record{Identity: java, Attachment: a.attachment(), Flags: bpf.SampleDepths, User: user})
	}
}

// linked feeds a link: the last two frames of user. If contexts are checked, the sample has all of
// them.
func (a *contextState) linked(user string, times int) {
	end := bpf.EndKnown
	if a.opt.Check {
		end = bpf.EndRoot
	} else {
		f := strings.Fields(user)
		user = strings.Join(f[max(0, len(f)-2):], " ")
	}
	for range times {
		a.feed(record{Identity: java, Attachment: a.attachment(), Flags: bpf.SampleDepths | bpf.SampleLink, End: end,
			User: user})
	}
}

func (a *contextState) attachment() uint32 {
	if p := a.state().Table[int(java.PID)]; p != nil {
		return p.Attachment.Load()
	}
	return 0
}

// contextsOf returns all contexts of a tree that have a weight of their own.
func contextsOf(t *Tree) map[string]uint64 {
	m := map[string]uint64{}
	for id, n := range t.Nodes() {
		if n.Self > 0 {
			m[foldtest.Path(t.Stack(id))] += n.Self
		}
	}
	return m
}

// enteredOf returns all entered edges of a tree.
func enteredOf(t *Tree) map[string]uint64 {
	m := map[string]uint64{}
	for id, n := range t.Nodes() {
		if n.Entered > 0 {
			m[foldtest.Path(t.Stack(id))] += n.Entered
		}
	}
	return m
}

// placed closes a window and returns its contexts, of all threads, by certainty, as "certain: main
// run".
func (a *contextState) placed(w *Window) map[string]uint64 {
	a.state().Close(w)
	a.place(w)
	return a.held(w)
}

func (a *contextState) held(w *Window) map[string]uint64 {
	m := map[string]uint64{}
	var inTrees uint64
	for _, threads := range w.Processes {
		for tid, t := range threads {
			var count, total uint64
			for certainty := range t.Trees {
				tree := &t.Trees[certainty]
				total += tree.Total()
				for path, n := range contextsOf(tree) {
					m[profile.Certainty(certainty).String()+": "+path] += n
				}
			}
			for _, n := range t.Count.Placed {
				count += n
			}
			if count != t.Count.Linked || total != t.Count.Walked+t.Count.Linked || t.Waiting.Total() != 0 {
				a.t.Errorf("thread %d: %d walked, %d linked, of which %v are placed; %d are in trees, %d wait", tid,
					t.Count.Walked,
					t.Count.Linked, t.Count.Placed, total, t.Waiting.Total())
			}
			inTrees += total
		}
	}
	if inTrees != w.Folded {
		a.t.Errorf("%d samples are in trees, %d were folded", inTrees, w.Folded)
	}
	return m
}

// named names all requested frames as a worker would: by their letters.
func (a *contextState) named(p *Process) {
	frames := p.TakeWanted()
	for _, r := range frames {
		if bare := r.RawFrame; bare.End == 0 {
			p.SetName(bare, guest.Name{Symbols: []symbol.Symbol{guest.Marker(foldtest.Path([]guest.RawFrame{bare}))}})
		}
	}
	for _, r := range frames {
		if r.End != 0 {
			p.SetName(r.RawFrame, a.resolver.Name(p.Process, r))
		}
	}
}

// namedContexts are those of a named tree.
func namedContexts(t *cct.Tree[symbol.Symbol]) map[string]uint64 {
	m := map[string]uint64{}
	for id, n := range t.Nodes() {
		if n.Self == 0 {
			continue
		}
		var path []string
		for _, s := range t.Stack(id) {
			path = append(path, s.Value().Function)
		}
		slices.Reverse(path)
		m[strings.Join(path, " ")] += n.Self
	}
	return m
}
