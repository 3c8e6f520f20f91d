package agent

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A record is a sample as the kernel side writes it. Stacks are written as foldtest.Frames reads
// them.
type record struct {
	identity
	tid        uint32 // 0: pid
	attachment uint32
	classEpoch uint32
	flags      uint8
	end        bpf.WalkEnd // EndNone: the root
	kernel     []uint64
	user       string
	shared     *bpf.SharedStack
	linkTag    uint64
}

// encode lays the record out as the kernel side does.
func (r record) encode() []byte {
	user, depths := foldtest.Frames(r.user)
	if r.tid == 0 {
		r.tid = r.pid
	}
	if r.end == bpf.EndNone && len(user) > 0 {
		r.end = bpf.EndRoot
	}
	s := bpf.ProfileSample{
		Header: r.header(bpf.EventSample), UserFrames: uint16(len(user)), KernelFrames: uint16(len(r.kernel)), End: uint8(r.end),
		Flags: r.flags, Attachment: r.attachment, ClassEpoch: r.classEpoch,
	}
	s.Header.Tid = r.tid
	if r.shared != nil {
		s.Flags |= bpf.SampleShared
	}
	copy(s.Comm[:], []uint8("thread"))
	for i, f := range user {
		s.Frames[i] = uint64(f)
	}
	copy(s.Frames[len(user):], r.kernel)
	size := unsafe.Offsetof(s.Frames) + 8*uintptr(len(user)+len(r.kernel))
	raw := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&s)), size)...)
	order := binary.NativeEndian
	if s.Flags&bpf.SampleDepths != 0 {
		if s.Flags&bpf.SampleLink == 0 {
			raw = order.AppendUint64(raw, r.linkTag)
		}
		for _, d := range depths {
			raw = order.AppendUint32(raw, d)
		}
		raw = append(raw, make([]byte, len(raw)&4)...)
	}
	if h := r.shared; h != nil {
		for _, v := range []uint32{h.Serial, h.Base, h.Frames, h.Own} {
			raw = order.AppendUint32(raw, v)
		}
	}
	return raw
}

// A contextAgent folds records in a mode, without a kernel side. It keeps what that would have been told.
type contextAgent struct {
	*Agent
	t     testing.TB
	rates rateMap
	known map[uint64]bool // link tags, as the kernel side would have them: whether they are steady
}

func (a *contextAgent) setSteady(tag uint64, steady bool) error {
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

func newContextAgent(t testing.TB, opt Options) (*contextAgent, *Window) {
	inner, w := testAgent()
	a := &contextAgent{Agent: inner, t: t, rates: rateMap{}, known: map[uint64]bool{}}
	a.opt, a.log = opt, slog.New(slog.DiscardHandler)
	a.joiner = a.newJoiner(a.rates, a.setSteady)
	return a, w
}

var java = identity{100, 5, 1}

// attach has java run a VM that is attached under this number.
func (a *contextAgent) attach(serial uint32) *fold.Process {
	p := a.process(&bpf.Header{Pid: java.pid, Start: java.start, Exec: java.exec})
	p.Slot.Store(serial % bpf.MaxAttached)
	p.Attachment.Store(serial)
	return p
}

func (a *contextAgent) feed(r record) {
	a.mu.Lock() // as the drainer does
	defer a.mu.Unlock()
	a.handle(r.encode())
}

// walked feeds a walk of a thread of java's, as often as that.
func (a *contextAgent) walked(user string, times int) {
	for range times {
		a.feed(record{identity: java, attachment: a.attachment(), flags: bpf.SampleDepths, user: user})
	}
}

// linked feeds a link: the last two frames of user. Where contexts are checked, all of them are in the sample.
func (a *contextAgent) linked(user string, times int) {
	end := bpf.EndKnown
	if a.opt.CheckContexts {
		end = bpf.EndRoot
	} else {
		f := strings.Fields(user)
		user = strings.Join(f[max(0, len(f)-2):], " ")
	}
	for range times {
		a.feed(record{identity: java, attachment: a.attachment(), flags: bpf.SampleDepths | bpf.SampleLink, end: end, user: user})
	}
}

func (a *contextAgent) attachment() uint32 {
	if p := a.table[int(java.pid)]; p != nil {
		return p.Attachment.Load()
	}
	return 0
}

// contexts are all contexts of a tree that have a weight of their own.
func contextsOf(t *fold.Tree) map[string]uint64 {
	m := map[string]uint64{}
	for id, n := range t.Nodes() {
		if n.Self > 0 {
			m[foldtest.Path(t.Stack(id))] += n.Self
		}
	}
	return m
}

// enteredOf are all edges of a tree that were entered.
func enteredOf(t *fold.Tree) map[string]uint64 {
	m := map[string]uint64{}
	for id, n := range t.Nodes() {
		if n.Entered > 0 {
			m[foldtest.Path(t.Stack(id))] += n.Entered
		}
	}
	return m
}

// placed is what a window holds, when it closes: contexts of all threads by certainty, as "certain: main run".
func (a *contextAgent) placed(w *Window) map[string]uint64 {
	a.mu.Lock()
	delete(a.windows, w)
	a.closing[w] = struct{}{}
	a.mu.Unlock()
	a.place(w)
	return a.held(w)
}

func (a *contextAgent) held(w *Window) map[string]uint64 {
	m := map[string]uint64{}
	var inTrees uint64
	for _, threads := range w.processes {
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
				a.t.Errorf("thread %d: %d walked, %d linked, of which %v are placed; %d are in trees, %d wait", tid, t.Count.Walked,
					t.Count.Linked, t.Count.Placed, total, t.Waiting.Total())
			}
			inTrees += total
		}
	}
	if inTrees != w.folded {
		a.t.Errorf("%d samples are in trees, %d were folded", inTrees, w.folded)
	}
	return m
}

// named has all frames named that somebody asked for, as a worker would: by their letters.
func (a *contextAgent) named(p *fold.Process) {
	frames := p.TakeWanted()
	for _, r := range frames {
		if bare := r.RawFrame; bare.End == 0 {
			p.SetName(bare, target.Name{Symbols: []symbolize.Symbol{target.Marker(foldtest.Path([]target.RawFrame{bare}))}})
		}
	}
	for _, r := range frames {
		if r.End != 0 {
			p.SetName(r.RawFrame, a.resolver.Name(p.Process, r))
		}
	}
}

// namedContexts are those of a named tree.
func namedContexts(t *cct.Tree[symbolize.Symbol]) map[string]uint64 {
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
