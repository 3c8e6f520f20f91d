package guest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// TestStaleAgain: compiled code that seems to be gone is looked for again, a few times and with
// growing pauses. Meanwhile it is stale, and what was found once is not replaced by less.
func TestStaleAgain(t *testing.T) {
	rs, _ := faultyResolver(t, "", 0)
	code := bpf.Frame(bpf.FrameJIT) << 60
	if code.Kind() != bpf.FrameJIT {
		t.Fatalf("%#x is no compiled frame", uint64(code))
	}
	p := asked(1)
	p.wanted = append(p.wanted, Wanted{RawFrame: RawFrame{Frame: code, Kind: RawExact}})
	submit := func() {
		rs.queue.submit(p)
		rs.queue.wait(t.Context(), []*Process{p}, waitLong)
	}
	submit()
	if len(p.names) != 2 {
		t.Fatalf("%d of 2 frames have names", len(p.names))
	}
	for tries := uint8(1); tries <= maxNameTries; tries++ {
		if len(p.wanted) != 1 || p.wanted[0].Frame != code || p.wanted[0].tries != tries {
			t.Fatalf("wanted after %d tries: %+v", tries, p.wanted)
		}
		if pause := p.wanted[0].notBefore - proc.Monotonic(); tries > 1 && pause < nameAgain {
			t.Errorf("tried again in %v after %d tries", pause, tries)
		}
		submit() // too early
		if len(p.wanted) != 1 || p.wanted[0].tries != tries {
			t.Fatalf("tried too early: %+v", p.wanted)
		}
		p.wanted[0].notBefore = 0
		submit()
	}
	if len(p.wanted) != 0 || len(p.names) != 2 {
		t.Errorf("at last %d frames are wanted, %d have names", len(p.wanted), len(p.names))
	}
}

// TestNameLater: a process has one timer for the frames that are named later, however often it is
// worked on before that ends.
func TestNameLater(t *testing.T) {
	rs := NewResolver(Config{})
	var worked atomic.Int32
	rs.queue = newQueue(1, func(*Process) { worked.Add(1) })
	defer rs.queue.close()
	p := NewProcess(proc.Identity{PID: 1})
	timers := func() int {
		rs.queue.mu.Lock()
		defer rs.queue.mu.Unlock()
		return len(rs.queue.timers)
	}
	next := proc.Monotonic() + time.Hour
	const passes = 100
	for range passes {
		p.work.again = []Wanted{{notBefore: next + time.Second}, {notBefore: next}}
		rs.nameLater(p)
	}
	if n := timers(); n != 1 || p.work.due != next || len(p.wanted) != 2*passes {
		t.Errorf("%d timers after %d passes, one %v after its first frame, %d are wanted", n, passes, p.work.due-next,
			len(p.wanted))
	}
	p.work.again = []Wanted{{notBefore: proc.Monotonic() + time.Millisecond}} // what is due before has another timer
	rs.nameLater(p)
	wait.For(t, wait.Long, "the process is worked on", func() bool { return worked.Load() > 0 })
	if n := timers(); n != 1 || worked.Load() != 1 {
		t.Errorf("worked on %d times, %d timers are left", worked.Load(), n)
	}
}

// TestInlinedIn: where the VM does not record what was inlined, a frame of its own says so, below
// the method that is certain: also at a return address, as of calls of stubs nothing is recorded.
func TestInlinedIn(t *testing.T) {
	frames := []vmruntime.Frame{
		{Function: "a.B.inner", File: "B.java", Line: 3, BCI: 7, Approximate: true},
		{Function: "a.B.outer", File: "B.java", Line: 9, BCI: 2},
	}
	for _, exact := range []bool{true, false} {
		want := []symbol.Frame{
			{Function: "[inlined in a.B.inner]", SystemName: "[inlined in a.B.inner]", Inlined: true,
				Approximate: true},
			{Function: "a.B.inner", SystemName: "a.B.inner", File: "B.java", Line: 3, Inlined: true},
			{Function: "a.B.outer", SystemName: "a.B.outer", File: "B.java", Line: 9},
		}
		n := new(VM).name(frames, vmruntime.Site{Kind: vmruntime.Compiled, PC: 0x1000, Exact: exact}, jitMapping)
		var got []symbol.Frame
		for _, s := range n.Symbols {
			got = append(got, s.Value())
		}
		for i := range want {
			want[i].Kind, want[i].Mapping = symbol.KindJIT, jitMapping
		}
		if !slices.Equal(got, want) || len(n.BCIs) != len(got) || n.BCIs[len(n.BCIs)-2] != 7 {
			t.Errorf("exact %v: bytecode indexes %v,\n got %+v\nwant %+v", exact, n.BCIs, got, want)
		}
	}
}

// TestMapsRest: mappings that do not change are read more and more seldom, new ones soon again.
func TestMapsRest(t *testing.T) {
	one, two := proc.Maps{{Start: 1, Limit: 2}}, proc.Maps{{Start: 1, Limit: 2}, {Start: 4, Limit: 5}}
	w := newWorkerState()
	w.mapsRest = mapsInterval
	read := func(maps proc.Maps, want time.Duration) {
		t.Helper()
		w.rest(maps)
		w.maps = maps
		if w.mapsRest != want {
			t.Errorf("read again after %v, want %v", w.mapsRest, want)
		}
	}
	read(one, mapsInterval)
	read(one, 2*mapsInterval)
	read(one, 4*mapsInterval)
	read(one, maxMapsIntervalNoVM)
	read(two, mapsInterval)
	w.vm = &VM{}
	for range 9 {
		w.rest(two)
	}
	read(two, maxMapsInterval)
}

// TestUnmappedLater: an address in no mapping is named again once the mappings have been read, if
// they were not read for it.
func TestUnmappedLater(t *testing.T) {
	rs, _ := faultyResolver(t, "", 0)
	p := asked(1)
	p.work.mapsRead, p.work.mapsRest = proc.Monotonic(), time.Hour
	r := Wanted{RawFrame: RawFrame{Frame: bpf.Frame(bpf.FrameNative)<<60 | 0x1000, Kind: RawExact}}
	p.wanted = append(p.wanted, r)
	rs.queue.submit(p)
	rs.queue.wait(t.Context(), []*Process{p}, waitLong)
	if n := p.names[r.RawFrame]; !n.Unknown {
		t.Errorf("named %+v", n)
	}
	if len(p.wanted) != 1 || p.wanted[0].RawFrame != r.RawFrame || p.wanted[0].notBefore != p.work.mapsRead+
		p.work.mapsRest {
		t.Fatalf("wanted again: %+v", p.wanted)
	}
	p.wanted[0].notBefore = 0
	rs.queue.submit(p)
	rs.queue.wait(t.Context(), []*Process{p}, waitLong)
	if len(p.wanted) != 0 {
		t.Errorf("wanted for ever: %+v", p.wanted)
	}
}
