//go:build linux && amd64

package bpf

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A burster is a guest with one thread, played by the test, and the kernel's side of its page. The
// thread is the test's, locked; the page is mapped as a guest maps it.
type burster struct {
	*BurstTestObjects
	page   *BurstTestVmprofPage
	slot   *BurstTestVmprofSlot
	before [counterCount]uint64
}

// Verifying takes most of a test's time, and the kernel waits long when it changes a map of maps:
// all tests share one copy and one page. Counters are read as differences.
var loadBurster = sync.OnceValues(func() (*burster, error) {
	spec, err := LoadBurstTest()
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = 64 << 10
	b := &burster{BurstTestObjects: &BurstTestObjects{}}
	if err := spec.LoadAndAssign(b.BurstTestObjects, nil); err != nil {
		return nil, err
	}
	inner, err := ebpf.NewMap(spec.Maps["pages"].InnerMap)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(inner.FD(), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	b.page = (*BurstTestVmprofPage)(unsafe.Pointer(unsafe.SliceData(mem)))
	return b, b.Pages.Put(uint32(os.Getpid()), inner)
})

const (
	testSlot   = 7
	testSerial = 9
)

func newBurster(t testing.TB) *burster {
	t.Helper()
	shared, err := loadBurster()
	needKernel(t, err)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	b := *shared
	*b.page = BurstTestVmprofPage{}
	b.slot = &b.page.Slots[testSlot]
	b.guest(t, BurstTestBurstGuest{StartTicks: startTicks(t), Serial: testSerial})
	t.Cleanup(func() { b.run(t, b.PlayThreadEnd, BurstTestBurstRequest{}) })
	for c := range Counter(counterCount) {
		b.before[c] = b.total(t, c)
	}
	return &b
}

// guest says who this process is as a guest.
func (b *burster) guest(t testing.TB, g BurstTestBurstGuest) {
	t.Helper()
	if err := b.PageGuests.Put(uint32(os.Getpid()), &g); err != nil {
		t.Fatal(err)
	}
}

func (b *burster) rate(t testing.TB, stride, samples, calibrate uint32) {
	t.Helper()
	if err := b.BurstRates.Put(uint32(0), &BurstTestBurstRate{Stride: stride, Samples: samples,
		Calibrate: calibrate}); err != nil {
		t.Fatal(err)
	}
}

func (b *burster) run(t testing.TB, p *ebpf.Program, r BurstTestBurstRequest) {
	t.Helper()
	if _, err := p.Run(&ebpf.RunOptions{Context: &r}); err != nil {
		t.Fatalf("run %v: %v", p, err)
	}
}

func (b *burster) announce(t testing.TB, slot uint64) {
	t.Helper()
	b.run(t, b.PlayThread, BurstTestBurstRequest{Slot: slot})
}

func (b *burster) tick(t testing.TB, random uint32) {
	t.Helper()
	b.run(t, b.PlayTick, BurstTestBurstRequest{Random: random})
}

// method is a guest's method: prologue and stub as contrib/guest/vmprof.h has them. It returns
// whether the probe ran.
func (b *burster) method(t testing.TB, id uint64) bool {
	t.Helper()
	s := b.slot
	if s.Armed&1 == 0 {
		return false
	}
	if s.Left == 0 {
		s.Armed &^= 1
		return false
	}
	if s.Skip--; s.Skip != 0 {
		return false
	}
	s.Skip = s.Stride
	b.run(t, b.PlayCall, BurstTestBurstRequest{Callee: id, Caller: 0x1000 + id})
	if s.Left--; s.Left == 0 {
		s.Armed &^= 1
	}
	return true
}

func (b *burster) total(t testing.TB, c Counter) (sum uint64) {
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

// counted is how much c grew since the burster was made.
func (b *burster) counted(t testing.TB, c Counter) uint64 {
	t.Helper()
	return b.total(t, c) - b.before[c]
}

// startTicks is the start of this process as /proc/PID/stat has it.
func startTicks(t testing.TB) uint64 {
	t.Helper()
	// Field 22, counted from the parenthesis that closes the second one, the name: a test gives its
	// thread one with a blank.
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	var n, field uint64 = 0, 2
	for _, c := range raw[bytes.LastIndexByte(raw, ')')+1:] {
		switch {
		case c == ' ':
			field++
		case field == 22:
			n = n*10 + uint64(c-'0')
		}
	}
	return n
}
