//go:build linux

package bpf

import (
	"testing"
	"time"
)

// Of threads in an invocation that is followed, shorter waits are recorded always than of others:
// down to a length, or to an eighth of that of others.
func TestKernelWaitsInside(t *testing.T) {
	const inside, waits = 5 * time.Millisecond, 10
	for _, tt := range []struct {
		name               string
		mean, length, want time.Duration
	}{
		{"down to the length", 40 * time.Millisecond, 6 * time.Millisecond, inside},
		{"down to an eighth", 400 * time.Millisecond, 60 * time.Millisecond, 50 * time.Millisecond},
		{"as others, of which all are recorded", 4 * time.Millisecond, 6 * time.Millisecond, 4 * time.Millisecond},
	} {
		for _, wakers := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				w := newWaitWatchOf(t, waitOptions{wakers: wakers, inside: inside})
				if err := w.Begin(tt.mean); err != nil {
					t.Fatal(err)
				}
				start := make(chan struct{})
				wait := func() {
					<-start
					for range waits {
						sleepFor(tt.length)
					}
				}
				in, inEnds := onThread(t, wait)
				out, outEnds := onThread(t, wait)
				other, otherEnds := onThread(t, wait) // the thread before it with its id was inside
				born := w.known(t)[in].Born
				for tid, of := range map[uint32]OpenInvocation{in: {Born: born, Time: 1}, out: {Born: w.known(t)[out].Born},
					other: {Born: born - 1, Time: 1}} {
					if err := w.objects.OpenInvocations.Put(tid, of); err != nil {
						t.Fatal(err)
					}
				}
				noted := uint64(monotonic(t))
				close(start)
				<-inEnds
				<-outEnds
				<-otherEnds
				var recorded time.Duration
				for _, s := range w.waits(t) {
					if s.since < noted || s.length < tt.length {
						continue
					}
					want := tt.mean
					if s.tid == in {
						want = tt.want
						recorded += s.length
					}
					if (s.tid == in || s.tid == out || s.tid == other) && time.Duration(s.mean) != want {
						t.Errorf("thread %d waited for %v, recorded as one of %v, want %v", s.tid, s.length,
							time.Duration(s.mean), want)
					}
				}
				// The runtime's signals may divide some waits into shorter ones. A seventh of the
				// waits of others is recorded.
				if all := waits * tt.length; recorded < all*3/4 {
					t.Errorf("%v of %v inside are recorded", recorded, all)
				}
			})
		}
	}
}
