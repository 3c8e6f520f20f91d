package events

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A virtualLook is which of a process's virtual threads waited at a moment.
type virtualLook struct {
	waiting []waitingVirtual
	weight  float64 // how many threads one that was drawn stands for
}

// A waitingVirtual is a virtual thread that has left its carrier, and waits for an object.
type waitingVirtual struct {
	vmruntime.VirtualDoing
	id     uint64
	weight float64 // how many threads it stands for
	stack  []byte  // a record of a Sample; nil if it could not be read
}

func (v *waitingVirtual) kind() int { return probes.VirtualKind(v.State == vmruntime.VirtualBlocked) }

// waits reports whether it does so for an object.
func (v *waitingVirtual) waits() bool {
	return v.State == vmruntime.VirtualBlocked || v.State == vmruntime.VirtualParked && v.Class != ""
}

// event is that of its wait, without what it stands for; epoch is of its stack.
func (v *waitingVirtual) event(p *guest.Process) (event fold.Event, epoch uint32) {
	event.Thread = virtualName
	lockWait(&event, v.Class, waitNames[v.kind()])
	var o bpf.Observation
	if v.stack != nil && bpf.DecodeSample(v.stack, &o.Sample) == nil {
		event.Stack, epoch = observedStack(nil, &o, p.Attachment.Load()), o.ClassEpoch
	}
	return event, epoch
}

// A drawnVirtual is a virtual thread and what it did.
type drawnVirtual struct {
	vmruntime.VirtualThread
	vmruntime.VirtualDoing
}

// virtualTries is how often virtual threads are read if the collector keeps moving them.
const virtualTries = 3

// drawVirtual draws about most of a process's virtual threads. collections is how many had begun
// before. If the collector moves threads again and again, the last reading is taken as it is.
func drawVirtual(l vmruntime.VirtualLister, most int) (threads []drawnVirtual, collections uint64, err error) {
	for range virtualTries {
		if threads, collections, err = readDrawn(l, most); !errors.Is(err, vmruntime.ErrMoved) {
			return threads, collections, err
		}
	}
	return threads, collections, nil
}

// readDrawn is one reading of drawVirtual. With vmruntime.ErrMoved, the threads are as far as known.
func readDrawn(l vmruntime.VirtualLister, most int) (threads []drawnVirtual, collections uint64, err error) {
	collections, moved := l.Collections()
	if moved != nil && !errors.Is(moved, vmruntime.ErrMoved) {
		return nil, 0, moved
	}
	list, err := l.VirtualThreads(most, rand.IntN)
	if err != nil {
		return nil, 0, err
	}
	words := make([]vmruntime.VirtualWords, len(list))
	for i := range list {
		words[i] = list[i].Words
	}
	doing, err := l.DescribeVirtual(words, collections)
	if err != nil && !errors.Is(err, vmruntime.ErrMoved) {
		return nil, 0, err
	}
	for i := range list {
		threads = append(threads, drawnVirtual{list[i], doing[i]})
	}
	return threads, collections, cmp.Or(moved, err)
}

// virtualWaiting draws about most of the process's virtual threads, and returns those that wait for
// an object. It reads the stacks of up to so many of them: these stand for the others that wait for
// objects of the same class.
func (e *Source) virtualWaiting(ctx context.Context, p *guest.Process, most, stacks int) (look virtualLook, err error) {
	var collections uint64
	threads, err := withLister(ctx, e, p, func(l vmruntime.VirtualLister) (threads []drawnVirtual, err error) {
		threads, collections, err = drawVirtual(l, most)
		return threads, err
	})
	if err != nil {
		return look, err
	}
	var asked []bpf.AskedVirtual
	all := 0.
	for i := range threads {
		t := &threads[i]
		all += t.Weight
		if w := (waitingVirtual{VirtualDoing: t.VirtualDoing, id: t.ID, weight: t.Weight}); w.waits() && !t.OnCarrier {
			look.waiting = append(look.waiting, w)
			asked = append(asked, bpf.AskedVirtual{Continuation: t.Continuation, Mounted: t.Mounted,
				State: t.VirtualThread.State, Blocker: t.Blocker, Waiter: t.Waiter})
		}
	}
	look.weight = all / float64(max(len(threads), 1))
	chosen := drawByClass(look.waiting, stacks, rand.IntN)
	some := make([]bpf.AskedVirtual, len(chosen))
	for i, at := range chosen {
		some[i] = asked[at]
	}
	var words []vmruntime.VirtualWords
	var seen []waitingVirtual
	err = e.locks.stacks.readVirtual(p.Identity(), some, time.Now().Add(surveyStacks), func(i int, v bpf.SeenVirtual) {
		if len(v.Stack) > 0 {
			words = append(words, vmruntime.VirtualWords{State: v.State, Blocker: v.Blocker, Waiter: v.Waiter})
			w := look.waiting[chosen[i]]
			w.stack = bytes.Clone(v.Stack)
			seen = append(seen, w)
		}
	})
	if err != nil {
		// Their waits are counted without stacks.
		e.services.Log.Debug("cannot read the stacks of virtual threads", "pid", p.PID, "err", err)
	}
	if len(seen) == 0 {
		return look, nil
	}
	doing, err := withLister(ctx, e, p, func(l vmruntime.VirtualLister) ([]vmruntime.VirtualDoing, error) {
		doing, err := l.DescribeVirtual(words, collections)
		if errors.Is(err, vmruntime.ErrMoved) {
			return nil, nil // what was known before is better
		}
		return doing, err
	})
	if err != nil {
		return look, err
	}
	for i := range doing { // a thread may have resumed since then, and wait for something else
		seen[i].VirtualDoing = doing[i]
	}
	look.waiting = standFor(look.waiting, seen)
	return look, nil
}

// drawByClass draws about n of waits, evenly from those for objects of each class.
func drawByClass(waiting []waitingVirtual, n int, draw func(n int) int) (chosen []int) {
	if len(waiting) == 0 {
		return nil
	}
	order := make([]int, len(waiting))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(waiting[a].Class, waiting[b].Class), cmp.Compare(a, b))
	})
	step := max((len(waiting)+n-1)/n, 1)
	for i := draw(step); i < len(order); i += step {
		chosen = append(chosen, order[i])
	}
	return chosen
}

// standFor returns waits with stacks, which stand for all that wait for objects of the same class,
// and those for which none does.
func standFor(waiting, seen []waitingVirtual) []waitingVirtual {
	type like struct {
		kind  int
		class string
	}
	of := func(v *waitingVirtual) like { return like{v.kind(), v.Class} }
	all, known := map[like]float64{}, map[like]float64{}
	for i := range waiting {
		all[of(&waiting[i])] += waiting[i].weight
	}
	for i := range seen {
		known[of(&seen[i])] += seen[i].weight
	}
	var kept []waitingVirtual
	for _, v := range seen {
		if l := of(&v); v.waits() && all[l] > 0 {
			v.weight *= all[l] / known[l]
			kept = append(kept, v)
		}
	}
	for _, v := range waiting {
		if known[of(&v)] == 0 {
			kept = append(kept, v)
		}
	}
	return kept
}

// withLister calls do with what lists p's virtual threads, in the worker that has the process.
func withLister[T any](
	ctx context.Context, e *Source, p *guest.Process, do func(vmruntime.VirtualLister) ([]T, error),
) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	got := make(chan []T, 1)
	err := e.services.Resolver.WithVM(ctx, p, func(g *guest.VM) error {
		lister, err := guest.As[vmruntime.VirtualLister](g)
		if err != nil {
			return err
		}
		list, err := do(lister)
		got <- list
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-got, nil
}

// Off-CPU and wall-clock time have no waits of virtual threads that have left their carriers. A
// look at the class library's list when a window ends says how many threads wait, and so about how
// much time that is.

// apartThreads are how many virtual threads waited without a carrier when the last window ended, by
// process. Only functions that have the State use it.
type apartThreads map[*guest.Process]float64

// wantsApart reports whether a kind of events is recorded that lacks these waits.
func (e *Source) wantsApart() bool {
	return e.Options.Kinds[profile.OffCPU] || e.Options.Kinds[profile.Wall]
}

// lookApart counts these threads in all processes that have had virtual threads. Those that cannot
// be read are left out.
func (e *Source) lookApart() apartThreads {
	if !e.wantsApart() {
		return nil
	}
	var ran []*guest.Process
	e.services.Owner.Do(func(s *fold.State) {
		for _, p := range s.Table {
			if e.RanVirtual(p.Process) && !p.Exited.Load() {
				ran = append(ran, p.Process)
			}
		}
	})
	found := apartThreads{}
	for _, p := range ran {
		waiting, err := withLister(context.Background(), e, p, waitingApart)
		if err != nil {
			e.services.Log.Debug("cannot count virtual threads that wait", "pid", p.PID, "err", err)
			continue
		}
		sum := 0.
		for _, weight := range waiting {
			sum += weight
		}
		found[p] = sum
	}
	return found
}

// waitingApart draws virtual threads, and returns what those stand for that wait without a carrier.
func waitingApart(l vmruntime.VirtualLister) (weights []float64, err error) {
	threads, _, err := drawVirtual(l, mostSurveyed)
	for i := range threads {
		if t := &threads[i]; !t.OnCarrier && t.VirtualDoing.State != vmruntime.VirtualRuns {
			weights = append(weights, t.Weight)
		}
	}
	return weights, err
}

// extent is the time that one kind of a process's events lacks in a window, as virtual threads
// waited apart, estimated from the look at its end. What of that kind was observed has extents of
// its own.
func (a apartThreads) extent(kind profile.EventKind, w *fold.Window, p *fold.Process) profile.Extent {
	x := profile.Extent{Subject: kind.String(), What: profile.ThreadWaits, Unit: "nanoseconds",
		Source: "the scheduler and the class library"}
	if kind == profile.Wall {
		x.What = profile.ThreadTimes
	}
	switch threads, known := a[p.Process]; {
	case !known, threads == 0: // threads that wait now and then are seldom seen by one look
		x.Miss(0, virtualApart)
	default:
		x.There = threads * float64(max(w.Ended-max(w.Began, p.Noticed), 0))
		x.Miss(x.There, virtualApart)
	}
	return x
}
