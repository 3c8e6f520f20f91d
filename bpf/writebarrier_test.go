//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"runtime"
	"testing"
)

// Cards of this thread, which stand for themselves after a collection has taken its queue, with
// where compiled code may have the object.
func TestKernelCards(t *testing.T) {
	q := newProber(t, Options{})
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	q.layout(t, HotspotHeap{Serial: proberSerial})
	var e Epochs
	epochs := func() {
		t.Helper()
		if err := q.o.Epochs.Put(uint32(proberSlot), &e); err != nil {
			t.Fatal(err)
		}
	}
	epochs()
	const card = 0x7f00_1234_5678
	p := q.attach(t, q.p.CardEnqueued, 1)
	hit := func(what string, queueless uint64) {
		t.Helper()
		p.hit(arguments{1, 2, card})
		o := q.one(t)
		if o.seen.What != ObservedCard || o.seen.Count != 2 || o.seen.Values[0] != card ||
			o.seen.Values[1] != queueless || o.seen.Every != 1 {
			t.Errorf("%s: %+v, want %#x and %d", what, o.seen, uint64(card), queueless)
		}
		if len(o.text) != 21*8+32*8+6*8 { // struct registers, the stack, the frame
			t.Fatalf("%s: %d bytes of text", what, len(o.text))
		}
		word := func(i int) uint64 { return binary.NativeEndian.Uint64([]byte(o.text[8*i:])) }
		const dx, ip = 12, 16
		if word(dx) != card || word(ip) != p.pc {
			t.Errorf("%s: rdx %#x at pc %#x, want %#x at %#x", what, word(dx), word(ip), uint64(card), p.pc)
		}
	}
	hit("the first of a thread", 1)
	hit("the next", 0)
	e.Stops++
	epochs()
	hit("after a stop", 0)
	e.Collections++
	epochs()
	hit("after a collection", 1)
	hit("the next", 0)
	e.Collections++
	epochs()
	q.turn(t, p, 1)
	hit("after a collection, while the probe was away", 0)
	q.rate(t, p, 0)
	e.Collections++
	epochs()
	p.hit(arguments{1, 2, card})
	q.none(t, "not to be told")
	q.turn(t, p, 1)
	hit("after one that was not told", 0)
	if delivered, full, busy := q.balanced(t); delivered == 0 || full+busy != 0 {
		t.Errorf("%d delivered, %d and %d dropped", delivered, full, busy)
	}
}
