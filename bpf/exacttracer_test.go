//go:build linux && amd64

package bpf

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// A tracer plays threads of a VM that tells of its calls. The test's thread is the guest's: it is
// locked.
type tracer struct {
	*ExactTestObjects
	vm       *fakeVM
	stack    region
	compiled *blob
	native   *blob
	frame    uint64 // bytes of compiled's frames
	caller   uint64 // a return address in compiled
}

const tracerFrame = 64 // bytes

func newTracer(t testing.TB, b build, opt ExactOptions) *tracer {
	t.Helper()
	opt.PID = os.Getpid()
	for _, n := range []*int{&opt.Nodes, &opt.Edges, &opt.Methods} {
		if *n == 0 {
			*n = 1000
		}
	}
	if opt.Threads == 0 {
		opt.Threads = 4
	}
	x := &tracer{ExactTestObjects: tracings.take(t, opt, loadTracing), frame: tracerFrame}
	if err := x.LastNode.Set(uint32(0)); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)

	x.vm = newFakeVM(t, b)
	x.compiled, x.native = x.vm.typical(tracerFrame), x.vm.newBlob(x.vm.NameNative, make([]byte, 256), tracerFrame/8, 0)
	x.vm.identify(x.native)
	x.caller = x.compiled.returnTo(0x80)
	x.stack = newRegion(t, 256<<10)
	x.vm.StartTicks, x.vm.Serial = startTicks(t), 7
	if err := x.Processes.Put(uint32(os.Getpid()), &x.vm.HotspotProcess); err != nil {
		t.Fatal(err)
	}
	x.record(t, 1) // since always: this thread started under recording
	return x
}

var tracings shelf[ExactOptions, *ExactTestObjects]

func (o *ExactTestObjects) maps() []*ebpf.Map { return mapsIn(o.ExactTestMaps) }

func loadTracing(opt ExactOptions) (*ExactTestObjects, error) {
	spec, err := LoadExactTest()
	if err != nil {
		return nil, err
	}
	if err := opt.apply(spec); err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = 64 << 10
	o := &ExactTestObjects{}
	return o, spec.LoadAndAssign(o, nil)
}

// record sets when recording began.
func (x *tracer) record(t testing.TB, since uint64) {
	t.Helper()
	if err := x.RecordingSince.Set(since); err != nil {
		t.Fatal(err)
	}
}

func (x *tracer) epochs(t testing.TB, e Epochs) {
	t.Helper()
	if err := x.Epochs.Put(x.vm.Slot, &e); err != nil {
		t.Fatal(err)
	}
}

// methodNamed is the Method* of a method whose name is one letter.
func methodNamed(letter byte) uint64 { return 0x7000_0000_0000 + uint64(letter)<<8 }

// play has events happen, one a word: +A@c100 is a call of A, whose code is compiled and whose
// frame ends, towards the caller's, at offset 100 of the stack in words; -A@c100 its return. Frames
// are c for compiled, n for wrappers of native methods, i for interpreted; u is code that is not
// understood.
func (x *tracer) play(t testing.TB, events string) {
	t.Helper()
	for _, e := range strings.Fields(events) {
		words, err := strconv.Atoi(e[4:])
		if err != nil {
			t.Fatalf("event %q: %v", e, err)
		}
		x.event(t, e[0] == '+', methodNamed(e[1]), e[3], x.stack.base+8*uint64(words))
	}
}

func (x *tracer) event(t testing.TB, enter bool, method uint64, kind byte, end uint64) {
	t.Helper()
	r := ExactTestRegisters{Si: method}
	from := x.compiled.begin + 0x40
	switch kind {
	case 'c':
		r.Sp = end - x.frame
	case 'n':
		from, r.Sp, r.Bp = x.native.begin+0x40, end-tracerFrame-48, end-16 // arguments were pushed
	case 'i':
		from, r.Sp, r.Bp = x.vm.interpreter.begin+0x40, end-200, end-64
		x.stack.put64(r.Bp+uint64(int64(x.vm.InterpSenderSp)), end)
	case 'u':
		from, r.Sp = libjvm, end-200
	}
	if kind == 'i' {
		x.stack.put64(r.Bp+8, x.caller)
	} else {
		x.stack.put64(end-8, x.caller)
	}
	r.Sp -= 8
	x.stack.put64(r.Sp, from)
	x.run(t, enter, r)
}

func (x *tracer) run(t testing.TB, enter bool, r ExactTestRegisters) {
	t.Helper()
	p := x.Leave
	if enter {
		p = x.Enter
	}
	if _, err := p.Run(&ebpf.RunOptions{Context: &r}); err != nil {
		t.Fatalf("run %v: %v", p, err)
	}
}

// tree returns the calls by context, as letters: "ABC" is C called by B called by A; a trailing +
// counts overflow. Threads are told apart by nothing.
func (x *tracer) tree(t testing.TB) map[string]uint64 {
	t.Helper()
	var last uint32
	if err := x.LastNode.Get(&last); err != nil {
		t.Fatal(err)
	}
	last = min(last, x.Nodes.MaxEntries()-1)
	contexts := map[string]uint64{}
	paths := make([]string, last+1)
	for i := uint32(0); i <= last; i++ {
		var n ExactNode
		if err := x.Nodes.Lookup(i, &n); err != nil {
			t.Fatal(err)
		}
		if n.Parent != 0 {
			paths[i] = paths[n.Parent] + string(byte(n.Method>>8))
			contexts[paths[i]] += n.Calls
		}
		if n.Overflow > 0 {
			contexts[paths[i]+"+"] += n.Overflow
		}
	}
	return contexts
}

// counts returns the counters that are not 0, without those of calls and returns.
func (x *tracer) counts(t testing.TB) map[ExactCounter]uint64 {
	t.Helper()
	all, err := (&ExactMaps{ExactCounters: x.ExactCounters}).ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	some := map[ExactCounter]uint64{}
	for c, n := range all {
		if n != 0 && ExactCounter(c) != ExactEntries && ExactCounter(c) != ExactExits {
			some[ExactCounter(c)] = n
		}
	}
	return some
}

// edges returns all edges.
func (x *tracer) edges(t testing.TB) map[ExactEdge]uint64 {
	t.Helper()
	edges := map[ExactEdge]uint64{}
	var e ExactEdge
	var n uint64
	entries := x.Edges.Iterate()
	for entries.Next(&e, &n) {
		edges[e] = n
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		t.Fatal(err)
	}
	return edges
}

// end has this thread end, as far as the tracer knows.
func (x *tracer) end(t testing.TB) {
	t.Helper()
	var r ExactTestRegisters
	if _, err := x.EndThread.Run(&ebpf.RunOptions{Context: &r}); err != nil {
		t.Fatal(err)
	}
}

// threadName returns the address of a name as prctl wants it.
func threadName(t testing.TB, name string) uint64 {
	r := newRegion(t, len(name)+1)
	r.put(r.base, []byte(name))
	return r.base
}
