//go:build linux

package bpf

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// A waitWatch records the waits of this process.
type waitWatch struct {
	o *Objects
	*OffCPU
}

// waitOptions are what a waitWatch is loaded with.
type waitOptions struct {
	Options
	wakers bool
	inside time.Duration
}

var waitWatches shelf[waitOptions, *waitWatch]

func loadWaitWatch(opt waitOptions) (*waitWatch, error) {
	o, err := loadMaps(opt.Options)
	if err != nil {
		return nil, err
	}
	f, err := o.LoadOffCPU(OffCPUOptions{Wakers: opt.wakers, Inside: opt.inside})
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &waitWatch{o, f}, nil
}

func newWaitWatch(t testing.TB, wakers bool) *waitWatch {
	t.Helper()
	return newWaitWatchOf(t, waitOptions{wakers: wakers})
}

func newWaitWatchOf(t testing.TB, opt waitOptions) *waitWatch {
	t.Helper()
	w := takeWaitWatch(t, opt)
	if err := w.o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	return w
}

func takeWaitWatch(t testing.TB, opt waitOptions) *waitWatch {
	t.Helper()
	w := waitWatches.take(t, opt, loadWaitWatch)
	t.Cleanup(func() {
		if err := errors.Join(w.SetMean(0), w.SetPause(0), w.Rotate(1)); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *waitWatch) maps() []*ebpf.Map {
	return append(mapsIn(w.o.ProfileMaps), w.objects.DrawnWaits, w.objects.Scratches, w.objects.OpenInvocations)
}

func (w *waitWatch) Close() error { return errors.Join(w.OffCPU.Close(), w.o.Close()) }

// known are the threads that are followed.
func (w *waitWatch) known(t *testing.T) map[uint32]OffCPUThread {
	t.Helper()
	threads := map[uint32]OffCPUThread{}
	if err := w.Threads(func(a *OffCPUThread) { threads[a.Tid] = *a }); err != nil {
		t.Error(err)
	}
	return threads
}

// A seenWait is an Observation that outlives its record.
type seenWait struct {
	tid           uint32
	state         uint8
	length, delay time.Duration
	since         uint64
	user          []Frame
	kernel        int
	pc            uint64

	woken, least, mean uint64
	every              uint32
}

func (w *waitWatch) waits(t *testing.T) (all []seenWait) {
	t.Helper()
	all, _ = w.waitsAndWakers(t)
	return all
}

// waitsAndWakers returns the waits in their order, and their wakers. A waker comes before its wait.
func (w *waitWatch) waitsAndWakers(t *testing.T) (all []seenWait, wakers map[wakingKey]seenWaker) {
	t.Helper()
	wakers = map[wakingKey]seenWaker{}
	drain(t, w.o, func(raw []byte) {
		var o Observation
		if err := DecodeObservation(bytes.Clone(raw), &o); err != nil {
			t.Fatal(err)
		}
		v := o.Seen.Values
		if o.Seen.What == ObservedWaker {
			key := wakingKey{uint32(v[WakerTID]), v[WakerSince]}
			if _, twice := wakers[key]; twice || slices.ContainsFunc(all,
				func(s seenWait) bool { return wakingKey{s.tid, s.since} == key }) {
				t.Errorf("the waker of %+v came twice, or late", key)
			}
			wakers[key] = seenWaker{o.Pid, o.Tid, o.Seen.Flags, o.User, len(o.Kernel), o.Time,
				string(bytes.TrimRight(o.Text, "\x00"))}
			return
		}
		if o.Kind != EventObserved || o.Pid != uint32(os.Getpid()) || o.Seen.What != ObservedWait ||
			o.Seen.Probe != ProbeWait {
			t.Errorf("%+v of process %d", o.Seen, o.Pid)
		}
		all = append(all, seenWait{
			o.Tid, o.Seen.Flags, time.Duration(o.Time - v[WaitSince]), time.Duration(v[WaitDelay]), v[WaitSince],
			o.User, len(o.Kernel), v[WaitPC],
			v[WaitWoken], v[WaitLeast], v[WaitMean], o.Seen.Every,
		})
	})
	return all, wakers
}

// A wakingKey identifies a wait: its thread, and when it began.
type wakingKey struct {
	tid   uint32
	since uint64
}

// A seenWaker is who ended a wait.
type seenWaker struct {
	pid, tid uint32
	flags    uint8
	user     []Frame
	kernel   int
	time     uint64
	comm     string
}

// balanced fails the test if waits are neither delivered nor thinned nor lost.
func (w *waitWatch) balanced(t *testing.T) (seen, thinned, delivered uint64) {
	t.Helper()
	if err := w.SetMean(0); err != nil {
		t.Fatal(err)
	}
	var c Counts
	var lost, wakers uint64
	waitFor(t, "records to be complete", func() (complete bool) {
		var err error
		if c, err = w.o.ReadCounts(); err != nil {
			t.Fatal(err)
		}
		wakers = c[WakersDrawn] - c[WakersLost]
		lost = c[ObservationsDroppedRingFull] + c[ObservationsDroppedBusy] - c[WakersLost]
		attempted := c[ObservationsAttempted]
		return attempted == c[ObservationsDelivered]+lost+c[WakersLost] && attempted == c[WaitsSeen]-c[WaitsThinned]+
			c[WakersDrawn]
	})
	seen, thinned, delivered = c[WaitsSeen], c[WaitsThinned], c[ObservationsDelivered]-wakers
	if drawn, dropped := c[NsWaitsDrawn], c[NsWaitsLost]; (drawn > 0) != (seen > thinned) || dropped > drawn ||
		(dropped > 0) != (lost > 0) {
		t.Errorf("%d of %d ns lost, %d of %d records", dropped, drawn, lost, delivered+lost)
	}
	if seen != thinned+delivered+lost || c[ObservationsAttempted] != delivered+lost+c[WakersDrawn] ||
		c[WaitsRefused] != 0 || c[WakersDrawn] > c[WakingsSeen] {
		t.Errorf("%d waits seen, %d thinned, %d attempted, %d delivered, %d lost, %d refused",
			seen, thinned, c[ObservationsAttempted], delivered, lost, c[WaitsRefused])
	}
	return seen, thinned, delivered
}
