//go:build linux

package bpf

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Each recorded wait has the record of its waker before it, if the part until it was woken was
// drawn: with the whole stack of whoever writes to a pipe, and of nobody if a timer ends it.
func TestKernelWakers(t *testing.T) {
	w := newWaitWatch(t, true)
	checkVerified(t, w.woken)
	const mean = 5 * time.Millisecond
	if err := w.Begin(mean); err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	const rounds = 20
	reader, readerEnds := onThread(t, func() {
		var b [1]byte
		for n := 0; n < rounds; {
			switch _, err := unix.Read(pipe[0], b[:]); err {
			case nil:
				n++
			case unix.EINTR:
			default:
				t.Error(err)
				return
			}
		}
	})
	writer, writerEnds := onThread(t, func() {
		for i := range rounds {
			for threadState(t, reader) != 'S' {
				sleepFor(time.Millisecond)
			}
			sleepFor(time.Duration(i) * time.Millisecond)
			if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
				t.Error(err)
			}
		}
	})
	<-readerEnds
	<-writerEnds
	w.balanced(t)
	c, err := w.o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	all, wakers := w.waitsAndWakers(t)
	comm := string(bytes.TrimSpace(readFile(t, "/proc/self/comm")))
	read, slept, missing := 0, 0, 0
	for _, s := range all {
		if s.woken != 0 && (s.state == OffCPUPreempted || s.woken <= s.since || s.woken > s.since+uint64(s.length) ||
			s.least >= s.mean || uint64(s.length) <= s.least) {
			t.Errorf("%+v", s)
		}
		drawn := s.woken != 0 && s.woken-s.since > s.least
		by, known := wakers[wakingKey{s.tid, s.since}]
		if known != drawn {
			if missing++; known || uint64(missing) > c[WakersLost] {
				t.Errorf("%+v has the waker %+v, %t", s, by, known)
			}
			continue
		}
		if !drawn || s.state != OffCPUBlocked {
			continue
		}
		if by.time != s.woken || by.kernel < 4 {
			t.Errorf("%+v was woken by %+v", s, by)
		}
		switch s.tid {
		case reader:
			if by.tid != writer {
				continue // a signal of Go's runtime
			}
			read++
			if by.pid != uint32(os.Getpid()) || by.flags != WakerChosen || by.comm != comm || len(by.user) < 3 ||
				by.user[0].Kind() != FrameNative {
				t.Errorf("woken by %+v", by)
			}
		case writer:
			slept++
			if by.flags == WakerKernel && len(by.user) > 0 {
				t.Errorf("woken by %+v", by)
			}
		}
	}
	t.Logf("%d of %d reads and %d sleeps have wakers, %d of %d records are lost", read, rounds, slept, c[WakersLost],
		c[WakersDrawn])
	// One half of the reads is longer than what is always recorded.
	if read < rounds/4 || slept < rounds/4 {
		t.Errorf("%d of %d reads were woken by their writer, %d sleeps by anybody", read, rounds, slept)
	}
}

// The time until threads are woken is right, and so is the rest, though most waits are not
// recorded.
func TestKernelWakersDrawn(t *testing.T) {
	w := newWaitWatch(t, true)
	const mean = 50 * time.Millisecond
	if err := w.Begin(mean); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	tid, end := onThread(t, func() {
		began := time.Now()
		for range 1000 {
			sleepFor(time.Millisecond)
		}
		took = time.Since(began)
	})
	<-end
	seen, thinned, _ := w.balanced(t)
	all, _ := w.waitsAndWakers(t)
	var blocked, whole time.Duration
	n := 0
	for _, s := range all {
		if s.tid != tid || s.woken == 0 {
			continue
		}
		whole += max(s.length, mean)
		if length := s.woken - s.since; length > s.least {
			blocked += max(time.Duration(length), mean)
			n++
		}
	}
	t.Logf("%d waits seen, %d thinned; blocked for %v by %d records, %v with the time on run queues, of %v", seen,
		thinned, blocked, n, whole, took)
	// About 20 records or more: 6 standard deviations of a Poisson number.
	if blocked < took/10 || whole > took*5/2 || blocked > whole {
		t.Errorf("blocked for %v, waited for %v, away for most of %v", blocked, whole, took)
	}
}

// What following wakers takes of each waking: of a thread that is not selected, of one whose wait
// is not drawn, and with a record.
func BenchmarkKernelWakers(b *testing.B) {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer statistics.Close()
	for _, bb := range []struct {
		name   string
		chosen bool
		mean   time.Duration
	}{{"unselected", false, MaxMeanInterval}, {"thinned", true, MaxMeanInterval}, {"recorded", true, 1}} {
		b.Run(bb.name, func(b *testing.B) {
			w := newWaitWatch(b, true)
			if !bb.chosen {
				if err := w.o.Pids.Delete(uint32(os.Getpid())); err != nil {
					b.Fatal(err)
				}
			}
			var pipes [2][2]int
			for i := range pipes {
				if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
					b.Fatal(err)
				}
				defer unix.Close(pipes[i][0])
				defer unix.Close(pipes[i][1])
			}
			if err := w.Begin(bb.mean); err != nil {
				b.Fatal(err)
			}
			before, err := w.woken.Stats()
			if err != nil {
				b.Fatal(err)
			}
			side := func(in, out int) func() {
				return func() {
					var one [1]byte
					for range b.N {
						unix.Read(in, one[:])
						unix.Write(out, one[:])
					}
				}
			}
			_, first := onThread(b, side(pipes[0][0], pipes[1][1]))
			_, second := onThread(b, side(pipes[1][0], pipes[0][1]))
			if _, err := unix.Write(pipes[0][1], []byte{1}); err != nil {
				b.Fatal(err)
			}
			for ended := false; !ended; drainRing(b, w.o.Events, func([]byte) {}) {
				select {
				case <-first:
					ended = true
				case <-time.After(10 * time.Millisecond):
				}
			}
			<-second
			after, err := w.woken.Stats()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(max(after.RunCount-before.RunCount, 1)),
				"ns/waking")
			b.ReportMetric(float64(after.RunCount-before.RunCount)/float64(b.N), "wakings/op")
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
