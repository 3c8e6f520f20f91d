//go:build linux && amd64

package bpf

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// A usdtGuest is a process with a probe, played by the test: its one thread is the test's, locked.
type usdtGuest struct {
	*UsdtTestObjects
	notices *ringbuf.Reader
}

// Verifying takes most of a test's time: all tests share one copy.
var loadUSDTTest = sync.OnceValues(func() (*usdtGuest, error) {
	spec, err := LoadUsdtTest()
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = 64 << 10
	g := &usdtGuest{UsdtTestObjects: &UsdtTestObjects{}}
	if err := spec.LoadAndAssign(g.UsdtTestObjects, nil); err != nil {
		return nil, err
	}
	g.notices, err = ringbuf.NewReader(g.UsdtNotices)
	return g, err
})

// newUSDTGuest begins with a guest that no tick has found yet.
func newUSDTGuest(t *testing.T, stride, samples uint32) *usdtGuest {
	t.Helper()
	g, err := loadUSDTTest()
	needKernel(t, err)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	g.asked(t)
	if err := g.UsdtRates.Put(uint32(0), UsdtTestUsdtRate{Stride: stride, Samples: samples}); err != nil {
		t.Fatal(err)
	}
	if err := g.UsdtGuests.Put(uint32(os.Getpid()), UsdtTestUsdtGuest{}); err != nil {
		t.Fatal(err)
	}
	g.close(t, 0)
	return g
}

func (g *usdtGuest) play(t *testing.T, p *ebpf.Program, r UsdtTestUsdtRequest) UsdtTestUsdtRequest {
	t.Helper()
	var out UsdtTestUsdtRequest
	if _, err := p.Run(&ebpf.RunOptions{Context: r, ContextOut: &out}); err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *usdtGuest) tick(t *testing.T, now uint64) {
	g.play(t, g.UsdtPlayTick, UsdtTestUsdtRequest{Now: now})
}

// close says that the window of a burst is closed.
func (g *usdtGuest) close(t *testing.T, burst uint64) {
	t.Helper()
	if err := g.UsdtClosed.Put(uint32(os.Getpid()), burst); err != nil {
		t.Fatal(err)
	}
}

// hit passes the probe, and reports whether that is a sample.
func (g *usdtGuest) hit(t *testing.T, now uint64) bool {
	return g.play(t, g.UsdtPlayHit, UsdtTestUsdtRequest{Now: now}).Answer != 0
}

func (g *usdtGuest) state(t *testing.T) (s UsdtTestUsdtGuest) {
	t.Helper()
	if err := g.UsdtGuests.Lookup(uint32(os.Getpid()), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// asked is what was asked for since the last time.
func (g *usdtGuest) asked(t *testing.T) (actions []USDTAction) {
	t.Helper()
	for g.notices.AvailableBytes() > 0 {
		rec, err := g.notices.Read()
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, USDTAction((*USDTNotice)(unsafe.Pointer(unsafe.SliceData(rec.RawSample))).Action))
	}
	return actions
}

// These are as Zend/zend_compile.h of PHP 8.2 has them, as far as they are read.
type (
	phpString struct {
		_     [24]byte
		value [16]byte // ends with a zero byte
	}
	phpClass struct {
		_    uint64
		name *phpString
	}
	phpFunction struct {
		kind   uint8
		_      [7]byte
		name   *phpString
		scope  *phpClass
		_      [64]byte
		opcode uint64 // at 88
		_      [56]byte
		file   *phpString // at 152
	}
	phpOp struct {
		_    [24]byte
		line uint32
		_    uint32
	}
	phpFrame struct {
		op   *phpOp
		_    [2]uint64
		fn   *phpFunction
		_    [2]uint64
		prev *phpFrame
	}
)

func newPHPString(s string) *phpString {
	p := &phpString{}
	copy(p.value[:], s)
	return p
}

// chainPHP is a stack of these functions, the innermost first. The one at i calls at line 10*i.
func chainPHP(functions ...*phpFunction) (f *phpFrame) {
	for i := len(functions) - 1; i >= 0; i-- {
		f = &phpFrame{op: &phpOp{line: uint32(10 * i)}, fn: functions[i], prev: f}
	}
	return f
}
