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

// A phpGuest is a PHP process played by the test: its one thread is the test's, locked.
type phpGuest struct {
	*PhpTestObjects
	notices *ringbuf.Reader
}

// Verifying takes most of a test's time: all tests share one copy.
var loadPHPTest = sync.OnceValues(func() (*phpGuest, error) {
	spec, err := LoadPhpTest()
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = 64 << 10
	g := &phpGuest{PhpTestObjects: &PhpTestObjects{}}
	if err := spec.LoadAndAssign(g.PhpTestObjects, nil); err != nil {
		return nil, err
	}
	g.notices, err = ringbuf.NewReader(g.PhpNotices)
	return g, err
})

// newPHPGuest begins with a guest that no tick has found yet.
func newPHPGuest(t *testing.T, stride, samples uint32) *phpGuest {
	t.Helper()
	g, err := loadPHPTest()
	needKernel(t, err)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	g.asked(t)
	if err := g.PhpRates.Put(uint32(0), PhpTestPhpRate{Stride: stride, Samples: samples}); err != nil {
		t.Fatal(err)
	}
	if err := g.PhpGuests.Put(uint32(os.Getpid()), PhpTestPhpGuest{}); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *phpGuest) play(t *testing.T, p *ebpf.Program, r PhpTestPhpRequest) PhpTestPhpRequest {
	t.Helper()
	var out PhpTestPhpRequest
	if _, err := p.Run(&ebpf.RunOptions{Context: r, ContextOut: &out}); err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *phpGuest) tick(t *testing.T, now uint64) {
	g.play(t, g.PhpPlayTick, PhpTestPhpRequest{Now: now})
}

// hit passes the probe, and reports whether that is a sample.
func (g *phpGuest) hit(t *testing.T, now uint64) bool {
	return g.play(t, g.PhpPlayHit, PhpTestPhpRequest{Now: now}).Answer != 0
}

func (g *phpGuest) state(t *testing.T) (s PhpTestPhpGuest) {
	t.Helper()
	if err := g.PhpGuests.Lookup(uint32(os.Getpid()), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// asked is what was asked for since the last time.
func (g *phpGuest) asked(t *testing.T) (actions []PHPAction) {
	t.Helper()
	for g.notices.AvailableBytes() > 0 {
		rec, err := g.notices.Read()
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, PHPAction((*PHPNotice)(unsafe.Pointer(unsafe.SliceData(rec.RawSample))).Action))
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
