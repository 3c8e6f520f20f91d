//go:build linux && amd64

package bpf

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

type (
	contexts = map[string]uint64
	lost     = map[ExactCounter]uint64
)

func TestKernelExactTree(t *testing.T) {
	for _, test := range []struct {
		name   string
		events string
		want   contexts
		lost   lost
	}{
		{
			"calls and returns",
			"+A@c900 +B@c800 -B@c800 +C@c800 +B@c700 -B@c700 -C@c800 +B@c800 -B@c800 -A@c900 +C@c900",
			contexts{"A": 1, "AB": 2, "AC": 1, "ACB": 1, "C": 1}, lost{},
		},
		{
			"recursion keeps its whole context",
			"+A@c900 +A@c800 +A@c700 -A@c700 +A@c700 -A@c700 -A@c800 -A@c900",
			contexts{"A": 1, "AA": 1, "AAA": 2}, lost{},
		},
		{
			"recursion that is inlined",
			"+A@c900 +A@c900 +A@c900 -A@c900 -A@c900 +B@c900 -B@c900 -A@c900",
			contexts{"A": 1, "AA": 1, "AAA": 1, "AB": 1}, lost{},
		},
		{
			"native methods have nodes, and what they call back stands below",
			"+A@c900 +N@n800 +B@c500 -B@c500 -N@n800 +B@c800 -B@c800 -A@c900",
			contexts{"A": 1, "AN": 1, "ANB": 1, "AB": 1}, lost{},
		},
		{
			"exceptions: HotSpot reports the returns",
			"+A@c900 +B@c800 +C@c700 -C@c700 -B@c800 +D@c800 -D@c800 -A@c900",
			contexts{"A": 1, "AB": 1, "ABC": 1, "AD": 1}, lost{},
		},
		{
			"frames without a return, by a call from further out",
			"+A@c900 +B@c800 +C@c700 +D@c600 +E@c820 -E@c820 -A@c900",
			contexts{"A": 1, "AB": 1, "ABC": 1, "ABCD": 1, "AE": 1}, lost{ExactUnwound: 3},
		},
		{
			"frames without a return, by a return from further out",
			"+A@c900 +B@c800 +C@c700 -A@c900 +D@c900",
			contexts{"A": 1, "AB": 1, "ABC": 1, "D": 1}, lost{ExactUnwound: 2},
		},
		{
			"an inlined method without a return",
			"+A@c900 +B@c900 +C@c900 -A@c900 +D@c900",
			contexts{"A": 1, "AB": 1, "ABC": 1, "D": 1}, lost{ExactUnwound: 2},
		},
		{
			"inlined methods that return after deoptimisation gave them frames of their own",
			"+A@c900 +B@c900 +C@c900 -C@i850 +D@c800 -D@c800 -B@i870 -A@i900 +D@c900",
			contexts{"A": 1, "AB": 1, "ABC": 1, "ABD": 1, "D": 1}, lost{},
		},
		{
			"a return of what overflowed the stack before it began",
			"+A@c900 +A@i800 +A@i700 -A@i600 +B@c600 -B@c600 -A@i700 -A@i800 -A@c900",
			contexts{"A": 1, "AA": 1, "AAA": 1, "AAAB": 1}, lost{ExactStray: 1},
		},
		{
			"a return of what was never entered",
			"+A@c900 -B@c800 +C@c800 -C@c800 -A@c900 -A@c950",
			contexts{"A": 1, "AC": 1}, lost{ExactStray: 2},
		},
		{
			"code that is not understood pairs by method",
			"+A@u900 +B@u800 +C@c700 -C@c700 -B@u800 +D@u800 -D@u800 -A@u900",
			contexts{"A": 1, "AB": 1, "ABC": 1, "AD": 1}, lost{ExactUnplaced: 6},
		},
	} {
		for _, b := range builds {
			t.Run(test.name+", "+b.name, func(t *testing.T) {
				x := newTracer(t, b, ExactOptions{})
				x.play(t, test.events)
				if got := x.tree(t); !maps.Equal(got, test.want) {
					t.Errorf("contexts %v, want %v", got, test.want)
				}
				if got := x.counts(t); !maps.Equal(got, test.lost) {
					t.Errorf("lost %v, want %v", got, test.lost)
				}
			})
		}
	}
}

// Compiled code that takes over from the interpreter aligns the stack.
func TestKernelExactReplacement(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{})
	x.play(t, "+A@c900 +A@i801 -A@c800 +B@c800 -B@c800 -A@c900")
	if got, want := x.tree(t), (contexts{"A": 1, "AA": 1, "AB": 1}); !maps.Equal(got, want) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	if got := x.counts(t); len(got) != 0 {
		t.Errorf("lost %v", got)
	}
}

// A thread that was there before is recorded from an unknown context on.
// Objects are counted by class and the context that the thread is in.
func TestKernelExactObjects(t *testing.T) {
	heap := newFakeHeap(t)
	heap.Serial = 7 // the VM's
	x := newTracer(t, builds[1], ExactOptions{Heap: &heap.HotspotHeap, Objects: 3})
	if err := x.Heaps.Put(uint32(os.Getpid()), &heap.HotspotHeap); err != nil {
		t.Fatal(err)
	}
	small, large, rest := heap.klass("Small", 16), heap.klass("Large", 4096), heap.klass("Rest", 24)
	made := func(klass uint64) {
		if _, err := x.MakeObject.Run(&ebpf.RunOptions{Context: &ExactTestRegisters{Di: heap.object(klass,
			0)}}); err != nil {
			t.Fatal(err)
		}
	}
	x.play(t, "+A@c900")
	made(small)
	x.play(t, "+B@c800")
	made(small)
	made(small)
	made(large)
	made(rest)                                                                                    // no room
	if _, err := x.MakeObject.Run(&ebpf.RunOptions{Context: &ExactTestRegisters{}}); err != nil { // no object
		t.Fatal(err)
	}
	x.play(t, "-B@c800")
	made(small)
	got := map[ExactAllocation]ExactAllocations{}
	var key ExactAllocation
	var n ExactAllocations
	for all := x.Allocations.Iterate(); all.Next(&key, &n); {
		got[key] = n
	}
	const a, b = 2, 3 // nodes; 1 is the thread
	want := map[ExactAllocation]ExactAllocations{
		{Klass: small, Node: a}: {Objects: 2, Bytes: 32}, {Klass: small, Node: b}: {Objects: 2, Bytes: 32},
		{Klass: large, Node: b}: {Objects: 1, Bytes: 4096},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := x.counts(t), (lost{ExactAllocated: 7, ExactUncounted: 2}); !maps.Equal(got, want) {
		t.Errorf("counters %v, want %v", got, want)
	}
}

func TestKernelExactBefore(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{})
	x.record(t, ^uint64(0))
	x.play(t, "+A@c800 -A@c800 -M@c900 +B@c900 -B@c900")
	if got, want := x.tree(t), (contexts{"A": 1, "B": 1}); !maps.Equal(got, want) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	if got, want := x.counts(t), (lost{ExactBefore: 1}); !maps.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
	for e := range x.edges(t) {
		if e.Caller != 0 || e.Site != 0 {
			t.Errorf("edge %+v has a caller: it may be inlined in a method that is not known", e)
		}
	}
}

func TestKernelExactOff(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{})
	x.record(t, 0)
	x.play(t, "+A@c800 -A@c800")
	if got := x.tree(t); len(got) != 0 {
		t.Errorf("recorded %v", got)
	}
}

func TestKernelExactEdges(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{})
	x.epochs(t, Epochs{Classes: 3})
	x.play(t, "+A@c900 +B@c900 -B@c900 +B@c900 -B@c900 +C@c800 -C@c800 +N@n800 -N@n800 +D@i800")
	// E is called by the interpreter.
	m := x.vm.newMethod(100)
	end, bp := x.stack.base+8*700, x.stack.base+8*740
	x.stack.put64(bp+uint64(int64(x.vm.InterpMethod)), m.addr)
	x.stack.put64(bp+uint64(int64(x.vm.InterpBcp)), m.codes+42)
	r := ExactTestRegisters{Si: methodNamed('E'), Sp: end - tracerFrame - 8}
	x.stack.put64(r.Sp, x.compiled.begin+0x40)
	x.stack.put64(end-8, x.vm.interpreter.begin+0x100)
	x.stack.put64(end-16, bp)
	x.run(t, true, r)

	from, site := uint64(x.compiled.jit(x.compiled.begin+0x40)), uint64(x.compiled.jit(x.caller))
	edge := func(caller, callee byte, site uint64, inlined uint32) ExactEdge {
		e := ExactEdge{Callee: methodNamed(callee), Site: site, ClassEpoch: 3, Inlined: inlined}
		if caller != 0 {
			e.Caller = methodNamed(caller)
		}
		return e
	}
	want := map[ExactEdge]uint64{
		edge(0, 'A', site, 0): 1, edge('A', 'B', from, 1): 2, edge('A', 'C', site, 0): 1, edge('A', 'N', site, 0): 1,
		edge('A', 'D', site, 0): 1, edge('D', 'E', uint64(m.frame(42)), 0): 1,
	}
	if got := x.edges(t); !maps.Equal(got, want) {
		t.Errorf("edges\n%+v, want\n%+v", got, want)
	}
}

// Code that replaced other code is looked at again.
func TestKernelExactCodeReplaced(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{})
	x.play(t, "+A@c900 +B@c900 -B@c900 -A@c900")
	block := x.compiled.addr - uint64(x.vm.BlockHeader)
	code := make([]byte, x.compiled.size)
	old := x.compiled.id
	x.frame *= 2
	x.compiled = x.vm.newBlobAt(block, x.vm.NameNmethod, code, int32(x.frame/8), 0)
	x.vm.identify(x.compiled)
	x.epochs(t, Epochs{Code: 1})
	x.play(t, "+A@c900 +B@c900")
	ids := map[uint32]int{}
	for e := range x.edges(t) {
		if Frame(e.Site).Kind() != FrameJIT {
			t.Errorf("edge %+v: %v", e, Frame(e.Site))
		}
		ids[Frame(e.Site).CompileID()]++
	}
	if len(ids) != 2 || ids[old] != 2 || ids[x.compiled.id] != 2 {
		t.Errorf("edges of compilations %v, want two each of %d and %d", ids, old, x.compiled.id)
	}
}

// Method structures are reused after classes were unloaded, so each epoch has its own nodes, and
// tells of its methods.
func TestKernelExactEpochs(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{})
	ring, err := ringbuf.NewReader(x.Events)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	x.play(t, "+A@c900 +B@c800 -B@c800 +B@c800 -B@c800")
	x.epochs(t, Epochs{Classes: 1, Code: 1})
	x.play(t, "+B@c800 -B@c800 -A@c900")
	if got, want := x.tree(t), (contexts{"A": 1, "AB": 3}); !maps.Equal(got, want) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	var seen []string
	for range 4 { // A is also a caller in the second epoch
		ring.SetDeadline(time.Now().Add(time.Second))
		record, err := ring.Read()
		if err != nil {
			t.Fatal(err)
		}
		m, err := DecodeMethodSeen(record.RawSample)
		if err != nil {
			t.Fatal(err)
		}
		if Kind(record.RawSample) != EventNewMethod || int(m.Pid) != os.Getpid() || m.Attachment != x.vm.Serial {
			t.Errorf("event %+v", m)
		}
		seen = append(seen, fmt.Sprintf("%c%d", byte(m.Method>>8), m.ClassEpoch))
	}
	if got := strings.Join(seen, " "); got != "A0 B0 B1 A1" {
		t.Errorf("announced %s", got)
	}
	if n := ring.AvailableBytes(); n != 0 {
		t.Errorf("%d more bytes of events", n)
	}
}

func TestKernelExactRoom(t *testing.T) {
	const events = "+A@c900 +B@c800 +C@c700 +D@c600 -D@c600 -C@c700 +C@c700 -C@c700 -B@c800 +E@c800 -E@c800 +B@c800"
	for _, test := range []struct {
		name string
		opt  ExactOptions
		want contexts
		lost lost
	}{
		{"contexts", ExactOptions{Nodes: 3}, contexts{"A": 1, "AB": 2, "AB+": 3, "A+": 1}, lost{ExactNoNode: 4}},
		{"no context at all", ExactOptions{Nodes: 1}, contexts{"+": 7}, lost{ExactNoNode: 7}},
		{"edges", ExactOptions{Edges: 2}, contexts{"A": 1, "AB": 2, "ABC": 2, "ABCD": 1, "AE": 1},
			lost{ExactNoEdge: 4}},
		{"methods", ExactOptions{Methods: 4, NoEdges: true}, contexts{"A": 1, "AB": 2, "ABC": 2, "ABCD": 1, "AE": 1},
			lost{ExactNoMethod: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTracer(t, builds[1], test.opt)
			x.play(t, events)
			if got := x.tree(t); !maps.Equal(got, test.want) {
				t.Errorf("contexts %v, want %v", got, test.want)
			}
			if got := x.counts(t); !maps.Equal(got, test.lost) {
				t.Errorf("lost %v, want %v", got, test.lost)
			}
			if test.opt.NoEdges && len(x.edges(t)) != 0 {
				t.Error("edges were recorded")
			}
		})
	}
}

// Deeper frames than the shadow stack holds are counted where it ends, and do not disturb what
// comes after.
func TestKernelExactDepth(t *testing.T) {
	for _, test := range []struct {
		name   string
		leave  int // frames that return, of those that were entered
		events string
		want   contexts
	}{
		{"all return", ExactDepth + 10, "+B@c9000", contexts{"B": 1}},
		{"an exception ends most", 0, "-A@c9000 +B@c9000", contexts{"B": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newTracer(t, builds[1], ExactOptions{Nodes: 2 * ExactDepth})
			top := x.stack.base + 8*9000
			for i := range uint64(ExactDepth + 10) {
				x.event(t, true, methodNamed('A'), 'c', top-16*i)
			}
			for i := range uint64(test.leave) {
				x.event(t, false, methodNamed('A'), 'c', top-16*(ExactDepth+9-i))
			}
			for range ExactDepth / 256 { // so many frames end at one event, at most
				x.play(t, "-X@c9000")
			}
			x.play(t, test.events)
			got := x.tree(t)
			if n := got[strings.Repeat("A", ExactDepth)+"+"]; n != 10 {
				t.Errorf("%d calls overflowed, want 10", n)
			}
			maps.DeleteFunc(got, func(path string, _ uint64) bool { return strings.HasPrefix(path, "AA") })
			test.want["A"] = 1
			if !maps.Equal(got, test.want) {
				t.Errorf("contexts %v, want %v", got, test.want)
			}
			if got := x.counts(t)[ExactTooDeep]; got != 10 {
				t.Errorf("%d calls were too deep", got)
			}
		})
	}
}

// Each thread has a tree of its own, and room for one more when it is gone.
func TestKernelExactThreads(t *testing.T) {
	x := newTracer(t, builds[1], ExactOptions{Threads: 1})
	x.play(t, "+A@c900")
	other := func(events string, end bool) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			_ = unix.Prctl(unix.PR_SET_NAME, uintptr(threadName(t, "vmprof other")), 0, 0, 0)
			x.play(t, events)
			if end {
				x.end(t)
			}
		}()
		<-done
	}
	other("+B@c900 -B@c900", false)
	if got, want := x.counts(t), (lost{ExactNoThread: 1}); !maps.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
	x.end(t)
	other("+C@c900", true)
	other("+C@c900", true)
	if got, want := x.tree(t), (contexts{"A": 1, "C": 2}); !maps.Equal(got, want) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	var names []string
	var root uint32
	var record ExactThread
	for records := x.ThreadRecords.Iterate(); records.Next(&root, &record); {
		names = append(names, unix.ByteSliceToString(record.Comm[:]))
		if record.Complete != 1 || record.Tid == 0 || record.Start == 0 {
			t.Errorf("thread %+v", record)
		}
	}
	others := 0
	for _, n := range names {
		if n == "vmprof other" {
			others++
		}
	}
	if len(names) != 3 || others != 2 {
		t.Errorf("threads %q", names)
	}
}
