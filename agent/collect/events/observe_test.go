package events

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

type (
	identity = foldtest.Identity
	record   = foldtest.Record
)

var java = identity{PID: 100, Start: 5, Exec: 1}

// watchingSource folds observations of probes, without a kernel side and without workers.
func watchingSource() (*Source, *fold.Window) {
	log := slog.New(slog.DiscardHandler)
	e := &Source{Probes: &probes.Probes{}, received: received{discarded: fold.NoDiscards()}}
	resolver := guest.NewResolver(guest.Config{Runtimes: runtimes.Table(), Log: log})
	state := fold.NewState(fold.StateOptions{MaxContexts: 1 << 20, Submit: resolver.Submit})
	e.services = &source.Services{Log: log, Resolver: resolver,
		Owner: fold.NewOwner(state, func(err error) { panic(err) })}
	w := fold.NewWindow(nil)
	state.Open(w)
	return e, w
}

// state returns the State without a loan: nothing else runs in these tests.
func (e *Source) state() (s *fold.State) {
	e.services.Owner.Do(func(own *fold.State) { s = own })
	return s
}

// handle folds a record as the drainer does.
func (e *Source) handle(raw []byte) { e.Handle(e.state(), raw) }

func TestDescribe(t *testing.T) {
	values := func(v ...uint64) (seen bpf.ProbeObservation) {
		seen.Every, seen.Count = 1, uint8(copy(seen.Values[:], v))
		return seen
	}
	with := func(seen bpf.ProbeObservation, change func(*bpf.ProbeObservation)) bpf.ProbeObservation {
		change(&seen)
		return seen
	}
	kind := func(what uint8, flags uint8, every uint32) func(*bpf.ProbeObservation) {
		return func(o *bpf.ProbeObservation) { o.What, o.Flags, o.Every = what, flags, every }
	}
	at := func(place uint8) func(*bpf.ProbeObservation) {
		return func(o *bpf.ProbeObservation) { o.What, o.Place = bpf.ObservedAllocation, place }
	}
	cause := func(operation, collector string) string {
		var c bpf.PauseCause
		copy(c.Operation[:], operation)
		copy(c.Collector[:], collector)
		return string(c.Operation[:]) + string(c.Collector[:])
	}
	allocated := values(16, 1<<18)
	for _, c := range []struct {
		name string
		seen bpf.ProbeObservation
		text string
		want string
	}{
		{"allocation", with(allocated, kind(bpf.ObservedAllocation, 0, 2)), "java/lang/String",
			"alloc java.lang.String: 32768 524288 0"},
		{"array", with(allocated, kind(bpf.ObservedAllocation, bpf.SeenOutside, 1)), "[[I",
			"alloc int[][]: 16384 262144 0"},
		{"allocation without a weight", with(values(16), kind(bpf.ObservedAllocation, 0, 1)), "A", "alloc A: 0 0 0"},
		{"young", with(allocated, at(bpf.PlaceYoung)), "A", "alloc A young: 16384 262144 0"},
		{"survivor", with(allocated, at(bpf.PlaceSurvivor)), "A", "alloc A survivor: 16384 262144 0"},
		{"old", with(allocated, at(bpf.PlaceOld)), "A", "alloc A old: 16384 262144 0"},
		{"humongous", with(allocated, at(bpf.PlaceHumongous)), "A", "alloc A humongous: 16384 262144 0"},
		{"a free monitor", with(values(700), kind(bpf.ObservedMonitor, 0, 1)), "A", "lock A enter: 1 0 700"},
		{"a monitor by spinning", with(values(700), kind(bpf.ObservedMonitor, bpf.SeenContended|bpf.SeenSpun, 3)), "A",
			"lock A spin: 3 3 2100"},
		{"a monitor by blocking", with(values(700), kind(bpf.ObservedMonitor, bpf.SeenContended, 1)), "A",
			"lock A block: 1 1 700"},
		{"a lock", with(values(700), kind(bpf.ObservedPark, 0, 2)),
			"java/util/concurrent/locks/ReentrantLock$NonfairSync",
			"lock java.util.concurrent.locks.ReentrantLock$NonfairSync park: 2 2 1400"},
		{"a condition", with(values(700), kind(bpf.ObservedPark, 0, 2)),
			"java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject",
			"lock java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject wait: 0 0 1400"},
		{"nothing that is known", with(values(700), kind(bpf.ObservedPark, 0, 1)), "", "lock wait: 0 0 700"},
		{"a pause", with(values(9000), kind(bpf.ObservedPause, 0, 1)), cause("ICBufferFull", ""),
			"safepoint ICBufferFull: 1 9000 0"},
		{"a collection", with(values(9000), kind(bpf.ObservedPause, bpf.SeenCollection, 1)),
			cause("G1Collect\x1bFull", "G1 Young\x1bGeneration"),
			`safepoint G1Collect\x1bFull G1 Young\x1bGeneration: 1 9000 0`},
		{"a collection by nobody", with(values(9000), kind(bpf.ObservedPause, bpf.SeenCollection, 1)), cause("", ""),
			"safepoint unknown: 1 9000 0"},
		{"a torn cause", with(values(9000), kind(bpf.ObservedPause, 0, 1)), "Deopt", "safepoint Deopt: 1 9000 0"},
		{"cycles", with(values(9_999_991), func(o *bpf.ProbeObservation) {
			o.What, o.Probe, o.Place = bpf.ObservedOverflow, bpf.ProbeCycles, bpf.PlaceOld
		}), "", "cpi: 9999991 0 0"},
		{"instructions", with(values(9_999_991), func(o *bpf.ProbeObservation) {
			o.What, o.Probe = bpf.ObservedOverflow, bpf.ProbeInstructions
		}), "", "cpi: 0 9999991 0"},
		{"nothing", values(), "", "not recorded"},
		{"what nobody knows", with(values(), kind(77, 0, 1)), "", "not recorded"},
		{"a place that nobody knows", with(allocated, at(251)), "A", "alloc A young: 16384 262144 0"},
	} {
		var e fold.Event
		o := bpf.Observation{Seen: &c.seen, Text: []byte(c.text)}
		got := "not recorded"
		if describe(&o, &e, methodinfo.ClassName) {
			l := e.Labels
			got = strings.Join(slices.DeleteFunc([]string{e.Kind.String(), l.Class, l.Place, l.What, l.Collector},
				func(s string) bool { return s == "" }), " ")
			got += fmt.Sprintf(": %.0f %.0f %.0f", e.Sums.Values[0], e.Sums.Values[1], e.Sums.Values[2])
			if e.Sums.Events != 1 {
				t.Errorf("%s: %d events", c.name, e.Sums.Events)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Threads that park for an object that is not a lock of java.util.concurrent wait for work.
func TestWaitsForWork(t *testing.T) {
	for class, want := range map[string]bool{
		"java.util.concurrent.locks.ReentrantLock$NonfairSync":                  false,
		"java.util.concurrent.locks.ReentrantLock$FairSync":                     false,
		"java.util.concurrent.locks.ReentrantReadWriteLock$NonfairSync":         false,
		"java.util.concurrent.Semaphore$NonfairSync":                            false,
		"java.util.concurrent.CountDownLatch$Sync":                              false,
		"java.util.concurrent.locks.StampedLock":                                false,
		"java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject": true,
		"java.util.concurrent.SynchronousQueue$TransferStack":                   true,
		"java.util.concurrent.CompletableFuture$Signaller":                      true,
		"java.util.concurrent.ForkJoinPool":                                     true,
		"java.lang.Object":                                                      true,
		"":                                                                      true,
		"com.example.Synchronizer":                                              true,
	} {
		if got := waitsForWork(class); got != want {
			t.Errorf("%q: %v, want %v", class, got, want)
		}
	}
}

// A wait for work is certain if the thread is known, and parked for no object.
func TestUnclearWaits(t *testing.T) {
	for _, c := range []struct {
		name   string
		flags  uint8
		object uint64
		class  string
		want   bool
	}{
		{"parked for nothing", bpf.SampleAttached | bpf.SampleJavaThread, 0, "", false},
		{"the thread is not known", bpf.SampleAttached, 0, "", true},
		{"the object cannot be read", bpf.SampleAttached | bpf.SampleJavaThread, 0x1000, "", true},
		{"a condition", bpf.SampleAttached | bpf.SampleJavaThread, 0x1000, "A$ConditionObject", false},
		{"a lock", bpf.SampleAttached | bpf.SampleJavaThread, 0x1000, "A$NonfairSync", false},
	} {
		e, w := watchingSource()
		p := e.state().Process(&bpf.Header{Pid: java.PID, Start: java.Start, Exec: java.Exec})
		r := record{Identity: java, Attachment: 7, User: "a:1 b:2", Flags: c.flags}
		seen := bpf.ProbeObservation{What: bpf.ObservedPark, Every: 3, Count: 1, Values: [8]uint64{5e6},
			Object: c.object}
		e.handle(foldtest.Observation(r, seen, c.class))
		e.handle(foldtest.Observation(r, seen, c.class))
		var notes []string
		var out profile.Process
		e.addNamed(w, p, &out, &fold.CoveredParts{}, nil, "")
		for _, e := range out.Events {
			notes = append(notes, e.Basis...)
		}
		said := slices.ContainsFunc(notes, func(note string) bool {
			return strings.HasPrefix(note, "2 waits of java.util.concurrent, 30ms together, count as waits for work, "+
				"because the blocker of ")
		})
		if said != c.want || !c.want && len(notes) > 0 {
			t.Errorf("%s: %q", c.name, notes)
		}
	}
}

// A thread seen only by probes triggers reading the VM's list of threads, like a sampled one.
func TestObservedStranger(t *testing.T) {
	e, _ := watchingSource()
	p := e.state().Process(&bpf.Header{Pid: java.PID, Start: java.Start, Exec: java.Exec})
	p.SetThreadsDue(1)
	park := func(flags uint8) bool {
		clear(e.state().Dirty)
		r := record{Identity: java, Attachment: 7, User: "a:1 b:2", Flags: flags}
		e.handle(foldtest.Observation(r, bpf.ProbeObservation{What: bpf.ObservedPark, Every: 1, Count: 1,
			Values: [8]uint64{700}}, "A$Sync"))
		return p.TakeThreadsWanted()
	}
	if park(bpf.SampleAttached | bpf.SampleJavaThread) {
		t.Error("the list is to be read for a thread that is known")
	}
	if !park(bpf.SampleAttached) {
		t.Error("the list is not to be read for a thread that is not")
	} else if _, ok := e.state().Dirty[p]; !ok {
		t.Error("no worker is to look at the process")
	}
}

// An observed stack begins in the calling code: not in a stub, and after a call.
func TestObservedStack(t *testing.T) {
	for _, c := range []struct{ user, want string }{
		{"a:1 b:2", "a:1 b:2, return"},
		{"a:1 b:2 !:3", "a:1 b:2, return"},
		{"a:1 !:2 !:3", "a:1, return"},
		{"!:3", "!:3, return"},
		{"a:1 !:2 5:3", "a:1 !:2 5:3, exact"},
		{"a:1 !:2 b:3", "a:1 !:2 b:3, return"},
		{"", ""},
	} {
		user, _ := foldtest.Frames(c.user)
		o := bpf.Observation{Sample: bpf.Sample{Header: &bpf.Header{}, User: user, End: bpf.EndRoot, Attachment: 7}}
		stack := observedStack(nil, &o, 7)
		got := foldtest.Path(stack)
		if len(stack) > 0 {
			got += map[guest.RawKind]string{guest.RawReturn: ", return", guest.RawExact: ", exact"}[stack[0].Kind]
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.user, got, c.want)
		}
	}
}

// Every received observation is folded or discarded for a reason, even if it has several values.
func TestObservationIdentity(t *testing.T) {
	e, w := watchingSource()
	e.state().Process(&bpf.Header{Pid: java.PID, Start: java.Start, Exec: java.Exec}).Attachment.Store(7)
	r := record{Identity: java, Attachment: 7, User: "a:1 b:2"}
	allocated := bpf.ProbeObservation{What: bpf.ObservedAllocation, Every: 1, Count: 2, Values: [8]uint64{16, 1 << 18}}
	good := foldtest.Observation(r, allocated, "A")
	e.handle(good)
	e.handle(good)
	e.handle(good[:len(good)-8])                                                    // cut
	e.handle(foldtest.Observation(r, bpf.ProbeObservation{What: 99, Every: 1}, "")) // an unknown kind
	// Nobody requested the probe of this one.
	e.handle(foldtest.Observation(r, bpf.ProbeObservation{What: bpf.ObservedValues}, ""))
	w.PIDs = map[int]bool{7: true}
	e.handle(good)
	c := e.received
	want := fold.NoDiscards()
	want[profile.Malformed], want[profile.NoWindow] = 3, 1
	if !maps.Equal(c.discarded, want) {
		t.Errorf("discarded %v, want %v", c.discarded, want)
	}
	if c.received != 6 || c.folded != 2 || c.received != c.folded+profile.Sum(c.discarded) {
		t.Errorf("received %d, folded %d, discarded %v", c.received, c.folded, c.discarded)
	}
	for p, s := range w.Events {
		if contexts := contextsOf(&s.ByKind(profile.Allocations).Tree); p.PID != int(java.PID) ||
			!maps.Equal(contexts, map[string]uint64{"a:1 b:2": 2}) {
			t.Errorf("process %d: %v", p.PID, contexts)
		}
	}
}

func FuzzHandleObservation(f *testing.F) {
	r := record{Identity: java, Attachment: 7, User: "a:1 b:2 !:3"}
	for what := range uint8(9) {
		f.Add(foldtest.Observation(r, bpf.ProbeObservation{What: what, Every: 1, Count: 2,
			Values: [8]uint64{16, 1 << 18}}, "java/lang/String"))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, w := watchingSource()
		e.AddValueSite(attach.ValueSite{}, valueprobe.Spec{Symbol: "f"})
		e.handle(raw)
		e.handle(raw)
		if c := e.received; c.received != c.folded+profile.Sum(c.discarded) {
			t.Errorf("received %d, folded %d, discarded %v", c.received, c.folded, c.discarded)
		}
		for p, s := range w.Events {
			names := p.Names()
			all, _ := s.Profile(names, p.Noticed, &fold.CoveredParts{}, nil)
			for _, e := range all {
				for _, row := range e.Rows {
					if row.Events == 0 && row.Values == [profile.MaxEventValues]float64{} && e.Kind != profile.Values {
						t.Errorf("a row of nothing: %+v", row)
					}
				}
			}
			names.Close()
		}
	})
}

// contextsOf are all contexts of a tree that have a weight of their own.
func contextsOf(t *fold.Tree) map[string]uint64 {
	m := map[string]uint64{}
	for id, n := range t.Nodes() {
		if n.Self > 0 {
			m[foldtest.Path(t.Stack(id))] += n.Self
		}
	}
	return m
}
