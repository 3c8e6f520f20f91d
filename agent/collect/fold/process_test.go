package fold

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A VM's list of threads is read for an unknown thread, once in a period for each, and no more
// often than permitted.
func TestStrangers(t *testing.T) {
	const unknown, known = bpf.SampleAttached, bpf.SampleAttached | bpf.SampleJavaThread
	p := NewProcess(proc.Identity{PID: 1}, true)
	meet := func(at time.Duration, tid uint32, flags uint8, want bool) {
		t.Helper()
		s := &bpf.Sample{Header: &bpf.Header{Time: uint64(at), Tid: tid}, Flags: flags}
		if got := p.ObserveThread(s); got != want || p.TakeThreadsWanted() != want {
			t.Errorf("thread %d at %v: %v, want %v", tid, at, got, want)
		}
	}
	meet(time.Second, 1, unknown, false) // the kernel side needs no list

	p.SetThreadsDue(2 * time.Second)
	meet(time.Second, 1, unknown, false) // it has just been read
	meet(2*time.Second, 2, known, true)  // now it may be read again, for thread 1
	meet(2*time.Second, 1, unknown, false)
	meet(3*time.Second, 2, known, false)
	meet(3*time.Second, 3, unknown, true)
	meet(4*time.Second, 4, 0, false) // the VM was not attached then
	meet(time.Second+strangersPeriod, 1, unknown, true)

	for tid := range uint32(2 * maxStrangers) {
		p.ObserveThread(&bpf.Sample{Header: &bpf.Header{Time: uint64(12 * time.Second), Tid: tid + 10}, Flags: unknown})
	}
	if n := len(p.strangers.seen); n != maxStrangers {
		t.Errorf("%d strangers, want %d", n, maxStrangers)
	}
}

// A version that was not read is not taken for the wrapper of a native method.
func TestLevelOf(t *testing.T) {
	for _, c := range []struct {
		level int
		tier  vmruntime.Tier
		want  int
	}{
		{3, vmruntime.TierC1, 3}, {4, vmruntime.TierC2, 4}, {0, vmruntime.TierNative, 0}, {0, vmruntime.TierC2, 4},
		{0, vmruntime.TierC1, -1}, {0, vmruntime.TierUnknown, -1},
	} {
		v := guest.CodeVersion{Compilation: vmruntime.Compilation{Level: c.level, Tier: c.tier}}
		if got := levelOf(&v); got != c.want {
			t.Errorf("level %d of tier %v: %d, want %d", c.level, c.tier, got, c.want)
		}
	}
}
