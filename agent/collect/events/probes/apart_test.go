package probes

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A process gets plans of its own while the plan of the file observes it. They go on where that one
// ended, count each hit once, and are removed after the process has ended.
func TestSeparate(t *testing.T) {
	k := newKernelSide(t)
	if !k.uprobes.FiltersByPID() {
		t.Skip("this kernel cannot confine probes to a process")
	}
	pool := proc.NewPool(library.PoolOptions)
	k.own, k.unattached = k.newOwn(pool), map[*guest.Process]*fileProbes{}
	t.Cleanup(k.own.Close)
	p := k.plan(t, profile.Values, k.Programs.ValueProbe)
	if err := p.find(nil); err != nil {
		t.Fatal(err)
	}
	p.file.Close()
	if err := k.attachPlan(p, k.file); err != nil {
		t.Fatal(err)
	}
	of := &fileProbes{key: symbolize.FileKey{Inode: 1}, plans: []*attachedPlan{p}}
	p.files = of
	k.adopt(of.plans)
	self := guest.NewProcess(proc.Identity{PID: os.Getpid()})
	other := guest.NewProcess(proc.Identity{PID: 1})
	self.Attachment.Store(7)
	k.noteUser(of.plans, self, "libjvm.so")
	k.noteUser(of.plans, other, "libjvm.so") // the agent is not attached to it
	k.now = proc.Monotonic()
	apart := func(least int) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.separate(of, least, "a test")
	}
	if apart(2) {
		t.Fatal("a process got plans of its own, though it is the only one")
	}
	before := k.hits(t)
	probed()
	if !apart(1) {
		t.Fatal("no process gets plans of its own")
	}
	k.separating.Wait()
	probed()
	if n := k.hits(t) - before; n != 2 {
		t.Errorf("%d hits, want one of each plan", n)
	}
	if len(k.plans) != 1 || k.plans[0].process != self || k.unattached[other] != of || len(p.links)+
		len(p.cookies) != 0 {
		t.Fatalf("%d plans, of the file there are %d links", len(k.plans), len(p.links))
	}
	own := k.plans[0]
	if n, err := k.hitsOf(own); err != nil || n != 1 || k.rateOf(t, own) != 1 || own.turn != p.turn {
		t.Errorf("%d hits (%v) of the process's own plan, one in %d is recorded, turn %d after %d", n, err,
			k.rateOf(t, own), own.turn, p.turn)
	}
	if got, want := own.cover.BornAt(), p.cover.BornAt(); got != want {
		t.Errorf("observed since %v, want %v as by the plan of the file", got, want)
	}
	if apart(1) {
		t.Error("that was under way though it was done")
	}
	k.own.Leave(self)
	for range 2 { // as the keeper of the file will do
		k.remove(t.Context(), of.plans)
	}
	if _, more := k.own.Expire(t.Context(), proc.Monotonic()+2*library.Grace); more || len(k.plans) != 0 {
		t.Errorf("%d plans of a process that has ended", len(k.plans))
	}
	before = k.hits(t)
	probed()
	if k.hits(t) != before {
		t.Error("a probe of a process that has ended is hit")
	}
}

// Processes that pass many probes and are not observed are named, in windows in which they did.
func TestWatchStrangers(t *testing.T) {
	k := newKernelSide(t)
	k.config.Root = proc.DefaultRoot
	put := func(pid int, hits uint64) {
		t.Helper()
		if err := k.Programs.Strangers.Put(uint32(pid), &bpf.Stranger{Hits: hits, Probe: 9}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(at time.Duration) (notes []string) {
		k.mu.Lock()
		k.now = at
		k.watchStrangers(time.Second)
		k.mu.Unlock()
		return k.StrangeNotes(at, at)
	}
	put(os.Getpid(), manyStrange-1)
	put(1<<22+1, 100)
	if notes := look(1); len(notes) != 0 {
		t.Errorf("few hits: %q", notes)
	}
	put(os.Getpid(), 2*manyStrange)
	put(1<<22+1, 3*manyStrange)
	notes := look(2)
	slices.Sort(notes)
	if len(notes) != 2 || !strings.Contains(notes[0], "pid") ||
		!strings.HasPrefix(notes[1], "process 4194305, which is not profiled, passed") {
		t.Errorf("many hits: %q", notes)
	}
	if notes := look(3); len(notes) != 0 {
		t.Errorf("no more hits: %q", notes)
	}
	put(1<<22+1, manyStrange+1) // it was forgotten
	if notes := look(4); len(notes) != 1 {
		t.Errorf("of a process that was forgotten: %q", notes)
	}
}
