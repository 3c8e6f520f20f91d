//go:build linux

package bpf

import (
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// However threads begin and end while others look, as many are counted as are followed: of this
// recording alone.
func TestKernelFollowedCount(t *testing.T) {
	w := takeWaitWatch(t, waitOptions{Options: Options{FilterByPID: true}})
	if err := w.o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.Begin(time.Second); err != nil {
			t.Fatal(err)
		}
		var ended atomic.Bool
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				for range 100 {
					_, end := onThread(t, func() {})
					<-end
				}
			})
		}
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			for !ended.Load() {
				w.known(t)
			}
		}()
		group.Wait()
		ended.Store(true)
		<-looked
		// A thread is counted until it has left its CPU for the last time, a moment after nobody
		// sees it any more. Go may make others meanwhile.
		waitFor(t, "threads that have ended not to be counted", func() bool {
			before := w.counted(t)
			followed := uint32(len(w.known(t)))
			return before == followed && w.counted(t) == followed
		})
	}
}

// counted is how many threads are counted of this recording.
func (w *waitWatch) counted(t *testing.T) uint32 {
	t.Helper()
	var counts [2]uint32
	if err := w.objects.Followed.Get(&counts); err != nil {
		t.Fatal(err)
	}
	return counts[w.begun&1]
}

// Of threads that switch often, most waits are not followed, and sums stay right: those of long
// waits, too. Their time on a CPU is known all the same.
func TestKernelWaitsSkipped(t *testing.T) {
	w := newWaitWatch(t, false)
	const mean, every, rounds, short, long = time.Microsecond, 8, 100, 20, 2 * time.Millisecond
	if err := errors.Join(w.Begin(mean), w.Rotate(every)); err != nil {
		t.Fatal(err)
	}
	var took, used time.Duration
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	over := make(chan struct{})
	tid, end := onThread(t, func() {
		began, from := time.Now(), threadUsed(t)
		for range rounds {
			for range short {
				sleepFor(100 * time.Microsecond)
			}
			sleepFor(long)
		}
		took, used = time.Since(began), threadUsed(t)-from
		close(over)
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	<-over
	waitFor(t, "the thread to read", func() bool { return threadState(t, tid) == 'S' })
	on := time.Duration(w.known(t)[tid].On)
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-end
	w.balanced(t)
	c, err := w.o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	n := 0
	for _, s := range w.waits(t) {
		if s.tid != tid || time.Duration(s.length) > took {
			continue
		}
		if s.every != 1 && s.every != every {
			t.Errorf("%+v", s)
		}
		sum += s.length * time.Duration(s.every)
		n++
	}
	// As if all were drawn. What was drawn says less: there may be no long one among it.
	brief := float64(took-used-rounds*long) / (rounds * short)
	variance := (every - 1) * rounds * (float64(long)*float64(long) + short*brief*brief)
	t.Logf("%d records, %d waits skipped; %v +- %v of %v; %v on the CPU, %v used", n, c[WaitsSkipped], sum,
		time.Duration(math.Sqrt(variance)), took, on, used)
	if waits := rounds * (short + 1); c[WaitsSkipped] < uint64(waits)/2 || n > waits/2 {
		t.Errorf("%d waits are skipped, and %d recorded, of %d", c[WaitsSkipped], n, waits)
	}
	if allowed := time.Duration(4*math.Sqrt(variance)) + took/10; sum < took-used-allowed || sum > took+allowed {
		t.Errorf("the waits add up to %v, of %v", sum, took)
	}
	// A switch takes some microseconds, which are not the thread's: 10 in the emulator.
	if switching := rounds * (short + 1) * 10 * time.Microsecond; on < used*9/10 || on > used+used/10+switching {
		t.Errorf("%v on the CPU, %v used", on, used)
	}
	// In the next rotation waits are followed again, at first.
	if err := errors.Join(w.Begin(mean), w.Rotate(every)); err != nil {
		t.Fatal(err)
	}
	// A sleep may be over before the thread has left the CPU: then it is no wait.
	var blocked int64
	again, end := onThread(t, func() {
		var before, after unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
			t.Error(err)
		}
		for range 10 {
			sleepFor(100 * time.Microsecond)
		}
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
			t.Error(err)
		}
		blocked = after.Nvcsw - before.Nvcsw
	})
	<-end
	w.balanced(t)
	n = 0
	for _, s := range w.waits(t) {
		if s.tid == again && s.state == OffCPUBlocked {
			n++
		}
	}
	if blocked == 0 || int64(n) < blocked {
		t.Errorf("%d of %d waits are recorded", n, blocked)
	}
}

// What following takes of a switch: nothing is recorded, threads are not followed, all waits are,
// and only a sample of them.
func BenchmarkKernelSwitches(b *testing.B) {
	for _, bb := range []struct {
		name   string
		chosen bool
		mean   time.Duration
		every  uint32
	}{{"off", true, 0, 1}, {"unselected", false, MaxMeanInterval, 1}, {"followed", true, MaxMeanInterval, 1},
		{"skipped", true, MaxMeanInterval, MaxFollowEvery}} {
		b.Run(bb.name, func(b *testing.B) {
			w := newWaitWatch(b, false)
			if !bb.chosen {
				if err := w.o.Pids.Delete(uint32(os.Getpid())); err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(w.Begin(bb.mean), w.Rotate(bb.every)); err != nil {
				b.Fatal(err)
			}
			var pipes [2][2]int
			for i := range pipes {
				if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
					b.Fatal(err)
				}
				defer unix.Close(pipes[i][0])
				defer unix.Close(pipes[i][1])
			}
			var used [2]time.Duration
			side := func(i int) func() {
				return func() {
					var one [1]byte
					var cpu unix.CPUSet
					cpu.Set(0)
					if err := unix.SchedSetaffinity(0, &cpu); err != nil {
						b.Error(err)
					}
					from := threadUsed(b)
					for range b.N {
						unix.Read(pipes[i][0], one[:])
						unix.Write(pipes[1-i][1], one[:])
					}
					used[i] = threadUsed(b) - from
				}
			}
			_, first := onThread(b, side(0))
			_, second := onThread(b, side(1))
			if _, err := unix.Write(pipes[0][1], []byte{1}); err != nil {
				b.Fatal(err)
			}
			<-first
			<-second
			b.ReportMetric(float64(used[0]+used[1])/float64(2*b.N), "cpu-ns/switch")
		})
	}
}
