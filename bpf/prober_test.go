//go:build linux && amd64

package bpf

import (
	"bytes"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// A prober has programs of probes attached to functions of this process, which plays a VM: what the
// VM is, and what its objects look like, is registered in the kernel under this process's id.
type prober struct {
	*probing
	file *probedFile
	vm   HotspotProcess

	cookies uint32 // given out
}

const proberSerial, proberSlot = 41, 17

func newProber(t *testing.T, opts Options) *prober {
	t.Helper()
	return newProberOf(t, probings.take(t, opts, loadProbing))
}

func newProberOf(t *testing.T, loaded *probing) *prober {
	t.Helper()
	loaded.choose(t)
	q := &prober{probing: loaded, file: newProbedFile(t)}
	q.vm.Serial, q.vm.Slot, q.vm.StartTicks = proberSerial, proberSlot, startTicks(t)
	q.announce(t)
	return q
}

// announce tells the kernel side of the VM.
func (q *prober) announce(t *testing.T) {
	t.Helper()
	if err := q.o.Processes.Put(uint32(os.Getpid()), &q.vm); err != nil {
		t.Fatal(err)
	}
}

// layout tells it what objects look like.
func (q *prober) layout(t *testing.T, h HotspotHeap) {
	t.Helper()
	if err := q.p.Heaps.Put(uint32(os.Getpid()), &h); err != nil {
		t.Fatal(err)
	}
}

// A probe is a program at a function of its own.
type probe struct {
	cookie uint32
	pc     uint64
	hit    func(arguments)
}

// attach attaches a program under a cookie of its own. One in every hits is recorded.
func (q *prober) attach(t *testing.T, prog *ebpf.Program, every uint32) *probe {
	t.Helper()
	q.cookies++
	p := &probe{cookie: q.cookies}
	q.rate(t, p, every)
	p.hit, p.pc = q.file.attach(t, prog, uint64(p.cookie))
	return p
}

func (q *prober) rate(t *testing.T, p *probe, every uint32) {
	t.Helper()
	if err := q.p.Probes.Put(p.cookie, &ProbeRate{Every: every}); err != nil {
		t.Fatal(err)
	}
}

// turn has it that the probe was taken away and attached again: so many times by now.
func (q *prober) turn(t *testing.T, p *probe, turn uint32) {
	t.Helper()
	if err := q.p.Probes.Put(p.cookie, &ProbeRate{Every: 1, Turn: turn}); err != nil {
		t.Fatal(err)
	}
}

// An observed is an Observation that outlives its record.
type observed struct {
	Observation
	seen ProbeObservation
	text string
}

// observations are those made since the last call.
func (q *prober) observations(t *testing.T) (all []observed) {
	t.Helper()
	drain(t, q.o, func(raw []byte) {
		var o observed
		if err := DecodeObservation(bytes.Clone(raw), &o.Observation); err != nil {
			t.Fatal(err)
		}
		o.seen, o.text = *o.Seen, string(o.Text)
		if o.Kind != EventObserved || o.Pid != uint32(os.Getpid()) {
			t.Errorf("a record of kind %d of process %d", o.Kind, o.Pid)
		}
		all = append(all, o)
	})
	return all
}

// one is the only observation since the last call.
func (q *prober) one(t *testing.T) observed {
	t.Helper()
	all := q.observations(t)
	if len(all) != 1 {
		t.Fatalf("%d observations, want one", len(all))
	}
	return all[0]
}

// none fails the test if there was an observation since the last call.
func (q *prober) none(t *testing.T, why string) {
	t.Helper()
	if all := q.observations(t); len(all) != 0 {
		t.Errorf("%s: %d observations, the first %+v", why, len(all), all[0].seen)
	}
}

func (q *prober) counts(t *testing.T) Counts {
	t.Helper()
	c, err := q.o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// balanced fails the test if observations that were begun are neither delivered nor dropped for a
// reason, and returns how many were delivered, found the ring full, and found working memory in
// use.
func (q *prober) balanced(t *testing.T) (delivered, full, busy uint64) {
	t.Helper()
	c := q.counts(t)
	delivered, full, busy = c[ObservationsDelivered], c[ObservationsDroppedRingFull], c[ObservationsDroppedBusy]
	if table := c[ObservationsDroppedTableFull]; c[ObservationsAttempted] != delivered+full+busy+table {
		t.Errorf("attempted %d, delivered %d, dropped %d as the ring was full, %d as memory was in use and %d as a "+
			"table was full",
			c[ObservationsAttempted], delivered, full, busy, table)
	}
	return delivered, full, busy
}
