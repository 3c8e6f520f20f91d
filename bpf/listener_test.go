//go:build linux && amd64

package bpf

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// A listener is a guest that is this process, and the kernel's side of a window on it.
type listener struct {
	*ListenerTestObjects
	pid, start uint64
	before     [counterCount]uint64
}

// Verifying takes most of a test's time: all tests share one copy.
var loadListener = sync.OnceValues(func() (*ListenerTestObjects, error) {
	spec, err := LoadListenerTest()
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = 4096 // the smallest ring: a test fills it
	o := &ListenerTestObjects{}
	return o, spec.LoadAndAssign(o, nil)
})

func newListener(t testing.TB) *listener {
	t.Helper()
	o, err := loadListener()
	needKernel(t, err)
	l := &listener{ListenerTestObjects: o, pid: uint64(os.Getpid()), start: startTicks(t)}
	t.Cleanup(func() {
		_ = l.Processes.Delete(uint32(l.pid))
		_ = l.ListenerWatches.Delete(uint32(l.pid))
		l.events(t)
		l.ends(t)
	})
	for c := range Counter(counterCount) {
		l.before[c] = l.total(t, c)
	}
	return l
}

// attach makes vm the VM of this process.
func (l *listener) attach(t testing.TB, vm *fakeVM) {
	t.Helper()
	vm.Serial, vm.Slot, vm.StartTicks = 77, 3, l.start
	if err := l.Processes.Put(uint32(l.pid), &vm.HotspotProcess); err != nil {
		t.Fatal(err)
	}
}

func (l *listener) open(t testing.TB, w CallWatch) {
	t.Helper()
	if err := l.ListenerWatches.Put(uint32(l.pid), &w); err != nil {
		t.Fatal(err)
	}
}

func (l *listener) window(t testing.TB) (w CallWatch) {
	t.Helper()
	if err := l.ListenerWatches.Lookup(uint32(l.pid), &w); err != nil {
		t.Fatal(err)
	}
	return w
}

func (l *listener) hit(t testing.TB, r ListenerTestListenerRequest) {
	t.Helper()
	if _, err := l.PlayHit.Run(&ebpf.RunOptions{Context: &r}); err != nil {
		t.Fatalf("hit: %v", err)
	}
}

func (l *listener) total(t testing.TB, c Counter) (sum uint64) {
	t.Helper()
	var perCPU []uint64
	if err := l.Counters.Lookup(uint32(c), &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum
}

// counted checks how much counters grew since the listener was made.
func (l *listener) counted(t testing.TB, want map[Counter]uint64) {
	t.Helper()
	for c, n := range want {
		if got := l.total(t, c) - l.before[c]; got != n {
			t.Errorf("%v grew by %d, want %d", c, got, n)
		}
	}
}

// events takes the calls out of the stream.
func (l *listener) events(t testing.TB) (calls []Call) {
	t.Helper()
	records(t, l.Events, func(raw []byte) {
		c, err := DecodeCall(raw)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, *c)
	})
	return calls
}

// ends takes out the numbers of windows that reached their limit.
func (l *listener) ends(t testing.TB) (numbers []uint64) {
	t.Helper()
	records(t, l.WatchEnds, func(raw []byte) {
		numbers = append(numbers, *(*uint64)(unsafe.Pointer(unsafe.SliceData(raw))))
	})
	return numbers
}

func records(t testing.TB, m *ebpf.Map, f func([]byte)) {
	t.Helper()
	r, err := ringbuf.NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0)) // what is there, no more
	for {
		record, err := r.Read()
		if err != nil {
			return
		}
		f(record.RawSample)
	}
}

// request is a hit where the stack's innermost frame calls pc.
func (s *fakeStack) entered(pc uint64) ListenerTestListenerRequest {
	s.called(pc)
	return ListenerTestListenerRequest{Pc: pc, Ra: s.mem.word(s.sp), Sp: s.sp + 8, Bp: s.bp}
}

// Who calls, for all that may: each row leaves its caller innermost on the stack and says what
// frame that is.
var callers = []struct {
	name   string
	caller func(*fakeStack) Frame
}{
	{"compiled", func(s *fakeStack) Frame {
		c := s.typical(48)
		s.compiled(s.typical(96), 0x40).compiled(c, 0x40)
		return c.jit(c.begin + 0x40)
	}},
	{"deoptimised", func(s *fakeStack) Frame {
		c := s.typical(64)
		s.setDeopt(c, s.BlobDeoptHandler, 0xe8)
		s.code.put32(c.addr+uint64(s.BlobOrigPc), 24)
		s.compiled(c, 0x40)
		s.mem.put64(s.sp+24, s.pc)
		s.pc = c.begin + 0xe8
		return c.jit(c.begin + 0x40)
	}},
	{"interpreted", func(s *fakeStack) Frame {
		m := s.newMethod(300)
		s.compiled(s.typical(48), 0x40).interpreted(m, 299)
		return m.frame(299)
	}},
	{"interpreted, through an adapter", func(s *fakeStack) Frame {
		m := s.newMethod(300)
		s.interpreted(m, 7)
		s.push(poison) // arguments where compiled code wants them
		s.push(poison)
		return m.frame(7)
	}},
	{"interpreted frame that makes no sense", func(s *fakeStack) Frame {
		m := s.newMethod(10)
		s.interpreted(m, 10)
		return s.stub(s.pc)
	}},
	{"native code, called by compiled", func(s *fakeStack) Frame {
		n := s.typical(80)
		s.code.put64(n.addr+uint64(s.BlobName), s.NameNative)
		s.compiled(n, 0x40)
		left := s.here()
		s.unseen(libjvm)
		s.entry(left)
		return n.jit(n.begin + 0x40)
	}},
	{"native code, called by interpreted", func(s *fakeStack) Frame {
		m := s.newMethod(0)
		s.interpreted(m, noBCI)
		left := anchor{s.sp, s.pc, s.bp}
		s.unseen(libjvm)
		s.entry(left)
		return m.frame(noBCI)
	}},
	{"native code, called by compiled that left no pc", func(s *fakeStack) Frame {
		n := s.typical(80)
		s.compiled(n, 0x40)
		left := s.here()
		s.push(left.pc) // as a call does
		left.pc = 0
		s.entry(left)
		return n.jit(n.begin + 0x40)
	}},
	{"native code in a thread that began there", func(s *fakeStack) Frame {
		s.entry(anchor{})
		return s.stub(s.CallStubReturn)
	}},
	{"native code whose wrapper is not on the stack", func(s *fakeStack) Frame {
		s.entry(anchor{sp: 8, pc: s.typical(48).begin})
		s.mem.put64(s.bp+uint64(int64(s.EntryWrapperOffset)), s.sp-64)
		return s.stub(s.CallStubReturn)
	}},
	{"a stub", func(s *fakeStack) Frame {
		s.compiled(s.typical(48), 0x40).called(s.continuation.begin + 8)
		return s.stub(s.pc)
	}},
	{"an address in the code cache where nothing is", func(s *fakeStack) Frame {
		s.pc = s.CodeHigh - 8
		return s.stub(s.pc)
	}},
	{"native code", func(s *fakeStack) Frame {
		s.pc = libc
		return native(libc)
	}},
}

func TestKernelListenerCallers(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			l := newListener(t)
			vm := newFakeVM(t, b)
			l.attach(t, vm)
			callee := vm.typical(32)
			for _, c := range callers {
				t.Run(c.name, func(t *testing.T) {
					s := vm.newStack(t, 64<<10).entry(anchor{})
					want := c.caller(s)
					l.open(t, CallWatch{Watch: Watch{Number: 1, StartTicks: l.start,
						Addresses: [3]uint64{1, callee.begin}, Limit: 1}})
					l.hit(t, s.entered(callee.begin))
					got := l.window(t).Hits[0]
					if f := Frame(got.Caller); f != want {
						t.Errorf("caller is %v, want %v", f, want)
					}
					if f, want := Frame(got.Callee), callee.jit(callee.begin); f != want {
						t.Errorf("callee is %v, want %v", f, want)
					}
					if got.Entry != 1 || got.Tid != uint32(unix.Gettid()) && !isThread(got.Tid) || got.Time == 0 {
						t.Errorf("hit is %+v", got)
					}
				})
			}
		})
	}
}

// isThread reports whether this process has such a thread: the test may run on any.
func isThread(tid uint32) bool {
	return unix.Tgkill(os.Getpid(), int(tid), 0) == nil
}

// A guest whose VM is not known, or is not the process that the window is for, is listened to by
// plain addresses.
func TestKernelListenerWithoutVM(t *testing.T) {
	l := newListener(t)
	vm := newFakeVM(t, builds[1])
	callee, caller := vm.typical(32), vm.typical(48)
	window := CallWatch{Watch: Watch{Number: 1, StartTicks: l.start, Addresses: [3]uint64{callee.begin}, Limit: 9,
		Deliver: 1}}
	l.open(t, window)
	request := vm.newStack(t, 8<<10).compiled(caller, 0x40).entered(callee.begin)
	l.hit(t, request)
	l.attach(t, vm)
	vm.StartTicks++ // a VM that had this pid before
	if err := l.Processes.Put(uint32(l.pid), &vm.HotspotProcess); err != nil {
		t.Fatal(err)
	}
	l.hit(t, request)
	calls := l.events(t)
	if len(calls) != 2 {
		t.Fatalf("%d calls, want 2", len(calls))
	}
	for _, c := range calls {
		if Frame(c.Callee) != native(callee.begin) || Frame(c.Caller) != native(caller.begin+0x40) ||
			c.Attachment != 0 {
			t.Errorf("call is %+v", c)
		}
	}
}

// A window ends at its limit, and says so; what comes later is refused, but counted.
func TestKernelListenerLimit(t *testing.T) {
	l := newListener(t)
	w := CallWatch{Watch: Watch{Number: 5, StartTicks: l.start, Addresses: [3]uint64{0x1000, 0x2000, 0x3000}, Limit: 4}}
	l.open(t, w)
	for i, pc := range []uint64{0x1000, 0x3000, 0x3000, 0x2000, 0x1000, 0x2000} {
		l.hit(t, ListenerTestListenerRequest{Pc: pc, Ra: 0x5000 + uint64(i)})
		if ended := l.ends(t); len(ended) > 0 != (i == 3) || i == 3 && !slices.Equal(ended, []uint64{5}) {
			t.Errorf("after hit %d ended: %v", i, ended)
		}
	}
	got := l.window(t)
	if got.Watch.Claimed != 6 || got.Watch.Runs != 6 || got.Watch.Ns == 0 {
		t.Errorf("%d claimed, %d runs in %d ns", got.Watch.Claimed, got.Watch.Runs, got.Watch.Ns)
	}
	for i, entry := range []uint32{0, 2, 2, 1} {
		h := got.Hits[i]
		if h.Entry != entry || Frame(h.Callee) != native(w.Watch.Addresses[entry]) ||
			Frame(h.Caller) != native(0x5000+uint64(i)) {
			t.Errorf("hit %d is %+v", i, h)
		}
		if i > 0 && h.Time < got.Hits[i-1].Time {
			t.Errorf("hit %d is earlier than the one before", i)
		}
	}
	if got.Hits[4] != (ListenerHit{}) {
		t.Errorf("a hit beyond the limit: %+v", got.Hits[4])
	}
	l.counted(t, map[Counter]uint64{CallHits: 6, CallHitsRefused: 2, CallsAttempted: 0})
}

// Hits that belong to no window are counted and do nothing else.
func TestKernelListenerRefuses(t *testing.T) {
	l := newListener(t)
	l.hit(t, ListenerTestListenerRequest{Pc: 0x1000}) // none open
	w := CallWatch{Watch: Watch{Number: 5, StartTicks: l.start, Addresses: [3]uint64{0x1000}, Limit: 4, Deliver: 1}}
	l.open(t, w)
	l.hit(t, ListenerTestListenerRequest{Pc: 0x1004}) // an address of the window before
	w.Watch.StartTicks--
	l.open(t, w) // for the process that had this pid before
	l.hit(t, ListenerTestListenerRequest{Pc: 0x1000})
	w.Watch.StartTicks, w.Watch.Limit = l.start, 1000 // more than there are places
	l.open(t, w)
	for range MaxListenerHits + 1 {
		l.hit(t, ListenerTestListenerRequest{Pc: 0x1000})
		l.events(t)
	}
	l.counted(t, map[Counter]uint64{CallHits: 4 + MaxListenerHits, CallHitsRefused: 4, CallsAttempted: MaxListenerHits})
}

// A stream that is full loses the call there, not in the window.
func TestKernelListenerDelivers(t *testing.T) {
	l := newListener(t)
	vm := newFakeVM(t, builds[1])
	l.attach(t, vm)
	if err := l.Epochs.Put(vm.Slot, &ProfileEpochs{Code: 4, Classes: 6}); err != nil {
		t.Fatal(err)
	}
	callee := vm.typical(32)
	l.open(t, CallWatch{Watch: Watch{Number: 12, StartTicks: l.start, Addresses: [3]uint64{callee.begin},
		Limit: MaxListenerHits, Deliver: 1}})
	const hits = 100
	for range hits {
		l.hit(t, vm.newStack(t, 8<<10).entry(anchor{}).entered(callee.begin))
	}
	calls := l.events(t)
	if len(calls) == 0 || len(calls) == hits {
		t.Fatalf("%d of %d calls went through the smallest ring", len(calls), hits)
	}
	w := l.window(t)
	for i, c := range calls {
		want := Call{
			Header: c.Header, Callee: uint64(callee.jit(callee.begin)), Caller: uint64(vm.stub(vm.CallStubReturn)),
			Burst: 12, ClassEpoch: 6, Attachment: 77, Engine: EngineListener,
		}
		if c != want {
			t.Errorf("call %d is %+v, want %+v", i, c, want)
		}
		if h := w.Hits[i]; c.Header.Time != h.Time || c.Header.Tid != h.Tid || c.Header.Pid != uint32(l.pid) ||
			c.Header.Kind != EventCall {
			t.Errorf("header of call %d is %+v, its hit %+v", i, c.Header, h)
		}
	}
	n := uint64(len(calls))
	l.counted(t, map[Counter]uint64{CallHits: hits, CallHitsRefused: 0, CallsAttempted: hits, CallsDelivered: n,
		CallsDroppedRingFull: hits - n})
	if w.Watch.Claimed != hits || w.Hits[hits-1].Callee == 0 {
		t.Errorf("the window has %d hits", w.Watch.Claimed)
	}
}
