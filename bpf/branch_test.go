//go:build linux && amd64

package bpf

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A branchRecord is a struct perf_branch_entry of linux/perf_event.h.
type branchRecord struct{ from, to, flags uint64 }

// Kinds of branches, PERF_BR_..., where the kernel puts them in flags.
const (
	branchUnknown  = 0 << 20
	branchIndirect = 3 << 20
	branchCall     = 4 << 20
	branchIndCall  = 5 << 20
)

// A brancher is the kernel's side of samples that the test makes up.
type brancher struct {
	*BranchTestObjects
	before [counterCount]uint64
	costs  BranchTestBranchCost
	memory region // where records lie: outside Go's heap, which the kernel may find not present
}

var loadBrancher = sync.OnceValues(func() (*BranchTestObjects, error) {
	spec, err := LoadBranchTest()
	if err != nil {
		return nil, err
	}
	o := &BranchTestObjects{}
	return o, spec.LoadAndAssign(o, nil)
})

func newBrancher(t testing.TB, samples uint32) *brancher {
	t.Helper()
	o, err := loadBrancher()
	needKernel(t, err)
	b := &brancher{BranchTestObjects: o, memory: newRegion(t, 4096)}
	if err := b.BranchRates.Put(uint32(0), &BranchTestBranchRate{Samples: samples}); err != nil {
		t.Fatal(err)
	}
	b.costs = b.total(t)
	for c := range Counter(counterCount) {
		b.before[c] = b.counter(t, c)
	}
	return b
}

func (b *brancher) total(t testing.TB) (sum BranchTestBranchCost) {
	t.Helper()
	var perCPU []BranchTestBranchCost
	if err := b.BranchCosts.Lookup(uint32(0), &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, c := range perCPU {
		sum.Samples += c.Samples
		sum.Ns += c.Ns
		sum.Empty += c.Empty
		sum.Skewed += c.Skewed
		sum.Stubs += c.Stubs
		sum.Untyped += c.Untyped
	}
	return sum
}

func (b *brancher) counter(t testing.TB, c Counter) (sum uint64) {
	t.Helper()
	var perCPU []uint64
	if err := b.Counters.Lookup(uint32(c), &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum
}

func (b *brancher) run(t testing.TB, p *ebpf.Program, q BranchTestBranchRequest) []Call {
	t.Helper()
	if ret, err := p.Run(&ebpf.RunOptions{Context: &q}); err != nil || ret != 0 {
		t.Fatalf("run %v: %d, %v", p, int32(ret), err)
	}
	var calls []Call
	records(t, b.NmiEvents, func(raw []byte) {
		c, err := DecodeCall(raw)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, *c)
	})
	return calls
}

func (b *brancher) stack(t testing.TB, r []branchRecord) []Call {
	t.Helper()
	if len(r) > 0 {
		b.memory.put(b.memory.base, unsafe.Slice((*byte)(unsafe.Pointer(&r[0])), len(r)*int(unsafe.Sizeof(r[0]))))
	}
	return b.run(t, b.PlayStack, BranchTestBranchRequest{Records: b.memory.base, Count: uint32(len(r))})
}

// newest returns n records as the CPU has them: the latest first. Call i goes from 0x10000 + i to
// 0x20000 + i.
func newest(n int) (r []branchRecord) {
	for i := n - 1; i >= 0; i-- {
		r = append(r, branchRecord{from: 0x10000 + uint64(i), to: 0x20000 + uint64(i), flags: branchCall})
	}
	return r
}

func TestKernelBranchStack(t *testing.T) {
	kernel := newest(5)
	kernel[1].to = 0xffff_ffff_8100_0000   // a system call
	kernel[3].from = 0xffff_ffff_8100_0000 // an interrupt's way back
	for _, c := range []struct {
		name    string
		samples uint32
		records []branchRecord
		calls   []int
	}{
		{"all of them, oldest first", 32, newest(32), ints(0, 32)},
		{"a CPU that keeps fewer", 32, newest(16), ints(0, 16)},
		{"only the latest", 4, newest(32), ints(28, 32)},
		{"one", 1, newest(32), ints(31, 32)},
		{"none wanted", 0, newest(32), nil},
		{"none recorded", 32, nil, nil},
		{"records that nothing was written to", 32, make([]branchRecord, 32), nil},
		{"some of the kernel", 32, kernel, []int{0, 2, 4}},
	} {
		b := newBrancher(t, c.samples)
		calls := b.stack(t, c.records)
		var got []int
		for i, call := range calls {
			got = append(got, int(call.Callee-0x20000))
			want := Call{Header: call.Header, Callee: call.Callee, Caller: call.Callee - 0x10000, Burst: calls[0].Burst,
				Engine: EngineBranch, Stride: 1}
			if i == 0 {
				want.Stride = 0
			}
			if call != want || call.Header.Kind != EventCall || call.Header.Pid != uint32(os.Getpid()) ||
				call.Header.Time == 0 {
				t.Errorf("%s: call %d is %+v, want %+v", c.name, i, call, want)
			}
		}
		if !slices.Equal(got, c.calls) {
			t.Errorf("%s: calls %v, want %v", c.name, got, c.calls)
		}
		cost := b.total(t)
		empty := uint64(0)
		if len(c.calls) == 0 {
			empty = 1
		}
		if cost.Samples-b.costs.Samples != 1 || cost.Empty-b.costs.Empty != empty || cost.Ns <= b.costs.Ns {
			t.Errorf("%s: cost %+v, was %+v", c.name, cost, b.costs)
		}
		for counter, want := range map[Counter]uint64{
			CallHits: 1, CallsAttempted: uint64(len(c.calls)), CallsDelivered: uint64(len(c.calls)),
			CallsDroppedRingFull: 0,
		} {
			if n := b.counter(t, counter) - b.before[counter]; n != want {
				t.Errorf("%s: %v grew by %d, want %d", c.name, counter, n, want)
			}
		}
	}
}

// Each sample is a burst of its own.
func TestKernelBranchBursts(t *testing.T) {
	b := newBrancher(t, 32)
	seen := map[uint64]bool{}
	for range 100 {
		calls := b.stack(t, newest(2))
		if seen[calls[0].Burst] || calls[1].Burst != calls[0].Burst {
			t.Fatalf("bursts %#x, %#x", calls[0].Burst, calls[1].Burst)
		}
		seen[calls[0].Burst] = true
	}
}

func ints(from, to int) (s []int) {
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}

func TestKernelBranchRetired(t *testing.T) {
	const direct, indirect, skewed, empty = "direct", "indirect", "skewed", "empty"
	for _, c := range []struct {
		name  string
		code  []byte // before the return address
		ahead int64  // pc, from the callee's begin
		want  string
	}{
		{"call rel32", []byte{0x90, 0x90, 0xe8, 0, 1, 0, 0}, 0, direct},
		{"call rel32 backwards", []byte{0x90, 0x90, 0xe8, 0, 0xff, 0xff, 0xff}, 0, direct},
		{"the CPU is ahead", []byte{0x90, 0x90, 0xe8, 0, 1, 0, 0}, 9, direct},
		{"the CPU is elsewhere", []byte{0x90, 0x90, 0xe8, 0, 1, 0, 0}, 64, skewed},
		{"the CPU is before the callee", []byte{0x90, 0x90, 0xe8, 0, 1, 0, 0}, -1, skewed},
		{"call r", []byte{0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0}, 0, indirect},
		{"call r10", []byte{0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd2}, 0, indirect},
		{"call [r + d8]", []byte{0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18}, 0, indirect},
		{"call [r + s + d8]", []byte{0x90, 0x90, 0x90, 0xff, 0x54, 0xc8, 0x18}, 0, indirect},
		{"call [r + d32]", []byte{0x90, 0xff, 0x90, 0, 1, 0, 0}, 0, indirect},
		{"call [rip + d32]", []byte{0x90, 0xff, 0x15, 0, 1, 0, 0}, 0, indirect},
		{"call [r + s + d32]", []byte{0xff, 0x94, 0xc8, 0, 1, 0, 0}, 0, indirect},
		{"push [r]", []byte{0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x30}, 0, skewed},
		{"no call", []byte{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, 0, skewed},
		{"no code", nil, 0, skewed},
	} {
		b := newBrancher(t, 0)
		ra := b.memory.base + 1024
		copy(b.memory.at(ra-7), c.code)
		if c.code == nil {
			ra = b.memory.base // nothing is mapped before
		}
		callee := ra + 256
		if c.name == "call rel32 backwards" {
			callee = ra - 256
		}
		calls := b.run(t, b.PlayRetired, BranchTestBranchRequest{Pc: callee + uint64(c.ahead), Ra: ra, Period: 1009})
		cost := b.total(t)
		if n := cost.Skewed - b.costs.Skewed; (c.want == skewed) != (n == 1) || len(calls) != 1-int(n) {
			t.Errorf("%s: %d calls, %d skewed", c.name, len(calls), n)
			continue
		}
		if c.want != skewed && (calls[0].Callee != callee || calls[0].Caller != ra-1 || calls[0].Stride != 1009 ||
			calls[0].Engine != EngineBranch) {
			t.Errorf("%s: %+v, want from %#x to %#x", c.name, calls[0], ra-1, callee)
		}
	}
	b := newBrancher(t, 0)
	for _, q := range []BranchTestBranchRequest{{Pc: 1 << 63, Ra: 0x10000}, {Pc: 0x10000, Ra: 8}} {
		if calls := b.run(t, b.PlayRetired, q); len(calls) != 0 {
			t.Errorf("%+v: %+v", q, calls)
		}
	}
	if cost := b.total(t); cost.Empty-b.costs.Empty != 2 {
		t.Errorf("%d of two were empty", cost.Empty-b.costs.Empty)
	}
}

// The real programs load beside the agent's. On an event that records no branches they run and
// deliver nothing.
func TestKernelBranchObject(t *testing.T) {
	o := load(t, Options{})
	spec, err := LoadBranch()
	if err != nil {
		t.Fatal(err)
	}
	var beside BranchObjects
	needKernel(t, o.LoadBeside(spec, &beside))
	defer beside.Close()
	if err := beside.BranchRates.Put(uint32(0), &BranchRate{Samples: MaxBranches}); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, p := range []*ebpf.Program{beside.BranchStack, beside.BranchRetired} {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
			Size: unix.PERF_ATTR_SIZE_VER5, Sample: uint64(time.Millisecond)}
		fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: p, Attach: ebpf.AttachPerfEvent})
		if err != nil {
			t.Fatal(err)
		}
		before := samples(t, beside.BranchCosts)
		spin(t, func() bool { return samples(t, beside.BranchCosts).Samples > before.Samples+3 })
		l.Close()
		unix.Close(fd)
	}
	// A tick in the middle of user code finds no call on the stack, but by chance.
	cost := samples(t, beside.BranchCosts)
	counts, err := o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if counts[CallHits] != cost.Samples || cost.Empty+cost.Skewed+counts[CallsAttempted] != cost.Samples ||
		counts[NsCalls] != cost.Ns {
		t.Errorf("cost %+v, counts %v", cost, counts)
	}
}

func samples(t testing.TB, m *ebpf.Map) (sum BranchCost) {
	t.Helper()
	var perCPU []BranchCost
	if err := m.Lookup(uint32(0), &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, c := range perCPU {
		sum.Samples += c.Samples
		sum.Ns += c.Ns
		sum.Empty += c.Empty
		sum.Skewed += c.Skewed
		sum.Stubs += c.Stubs
		sum.Untyped += c.Untyped
	}
	return sum
}

// A call of a vtable or itable stub leads where the stub's jump leads, which is the next record.
// Other jumps are no calls.
func TestKernelBranchStubs(t *testing.T) {
	for _, build := range builds {
		vm := newFakeVM(t, build)
		caller, callee := vm.newBlob(vm.NameNmethod, make([]byte, 256), 0, 0),
			vm.newBlob(vm.NameNmethod, make([]byte, 256), 0, 0)
		stub, stub2 := vm.vtable.begin, vm.vtable.begin+64
		call := func(from, to uint64) branchRecord { return branchRecord{from, to, branchIndCall} }
		jump := func(from, to uint64) branchRecord { return branchRecord{from, to, branchIndirect} }
		from, to := caller.begin+40, callee.begin+32
		type edge struct{ from, to uint64 }
		for _, c := range []struct {
			name           string
			samples        uint32
			records        []branchRecord // the oldest first
			want           []edge
			stubs, untyped uint64
		}{
			{"a call through a stub", 32, []branchRecord{call(from, stub), jump(stub+20, to)}, []edge{{from, to}}, 0,
				0},
			{"two of them", 32, []branchRecord{call(from, stub), jump(stub+20, to), call(from+9, stub2),
				jump(stub2+20, to+1)},
				[]edge{{from, to}, {from + 9, to + 1}}, 0, 0},
			{"between other calls and jumps", 32,
				[]branchRecord{jump(from, from+3), call(to, from), call(from, stub), jump(stub+20, to), jump(to, to+8),
					call(to, 0x20000)},
				[]edge{{to, from}, {from, to}, {to, 0x20000}}, 0, 0},
			{"a jump that is not recorded yet", 32, []branchRecord{call(from, stub)}, []edge{{from, stub}}, 1, 0},
			{"a jump that is not recorded", 32, []branchRecord{call(from, stub), call(to, from)},
				[]edge{{from, stub}, {to, from}}, 1, 0},
			{"a jump of other code", 32, []branchRecord{call(from, stub), jump(to, to+8)}, []edge{{from, stub}}, 1, 0},
			{"a jump whose call is not recorded any more", 32, []branchRecord{jump(stub+20, to), call(to, from)},
				[]edge{{to, from}}, 0, 0},
			{"only the latest call, with its jump", 1, []branchRecord{call(to, from), call(from, stub),
				jump(stub+20, to)}, []edge{{from, to}}, 0, 0},
			{"jumps are not counted as calls", 2,
				[]branchRecord{call(to, from), call(from, 0x20000), jump(to, to+8), jump(to, to+8), call(to, 0x30000)},
				[]edge{{from, 0x20000}, {to, 0x30000}}, 0, 0},
			{"records of no kind", 32, []branchRecord{{from, to, branchUnknown}, call(to, from)}, []edge{{to, from}}, 0,
				1},
		} {
			b := newBrancher(t, c.samples)
			if err := b.Processes.Put(uint32(os.Getpid()), &vm.HotspotProcess); err != nil {
				t.Fatal(err)
			}
			records := slices.Clone(c.records)
			slices.Reverse(records) // as the CPU has them
			var got []edge
			for _, call := range b.stack(t, records) {
				got = append(got, edge{call.Caller, call.Callee})
			}
			if err := b.Processes.Delete(uint32(os.Getpid())); err != nil {
				t.Fatal(err)
			}
			cost := b.total(t)
			stubs, untyped := cost.Stubs-b.costs.Stubs, cost.Untyped-b.costs.Untyped
			if !slices.Equal(got, c.want) || stubs != c.stubs || untyped != c.untyped {
				t.Errorf("%s, %s: %#x, want %#x; %d stubs, %d of no kind", build.name, c.name, got, c.want, stubs,
					untyped)
			}
		}
	}
}
