package fold

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Windows have what threads ran in them: up to readings at their ends, or until the threads ended.
func TestRunTimes(t *testing.T) {
	const pid, start = 7, 100
	s := NewState(StateOptions{})
	run := func(tid uint32, born, ran uint64) bpf.ThreadRun {
		return bpf.ThreadRun{Pid: pid, Start: start, Tid: tid, Born: born, Ran: ran, Switches: ran / 10}
	}
	read := func(began time.Duration, threads ...bpf.ThreadRun) {
		s.BeginReading()
		s.ReadRunTimes(began, append([]bpf.ThreadRun{}, threads...))
	}
	end := func(tid uint32, born, ran uint64) {
		s.ThreadEnded(&bpf.ThreadEnd{Header: bpf.Header{Pid: pid, Tid: tid, Start: start}, Born: born, Ran: ran,
			Switches: ran / 10})
	}
	check := func(what string, w *Window, want map[uint32]time.Duration) {
		t.Helper()
		got := map[uint32]time.Duration{}
		for life, l := range w.RunTimes {
			if life != (Life{pid, start}) {
				t.Errorf("%s: a process %+v", what, life)
			}
			for tid, r := range l.Threads {
				got[tid] = r.Ran
				if uint64(r.Switches) != uint64(r.Ran)/10 {
					t.Errorf("%s: thread %d left its CPU %d times in %v", what, tid, r.Switches, r.Ran)
				}
			}
		}
		for tid, ran := range want {
			if got[tid] != ran {
				t.Errorf("%s: thread %d ran %v, want %v", what, tid, got[tid], ran)
			}
			delete(got, tid)
		}
		if len(got) > 0 {
			t.Errorf("%s: other threads ran: %v", what, got)
		}
	}

	end(9, 1, 1000) // nothing is read yet
	read(200, run(1, 101, 500), run(2, 102, 50))
	first := NewWindow(nil)
	s.Open(first)
	other := NewWindow(map[int]bool{pid + 1: true})
	s.Open(other)
	end(2, 102, 80)
	end(3, 210, 40)  // began and ended within the window
	end(4, 150, 900) // is older, and was not chosen then
	read(300, run(1, 101, 700), run(5, 250, 20))
	s.Close(first)
	check("first window", first, map[uint32]time.Duration{1: 200, 2: 30, 3: 40, 5: 20})
	check("window of another process", other, nil)

	second := NewWindow(nil)
	s.Open(second)
	// A reading that began before threads ended, and is taken after their records, does not count
	// them twice.
	s.BeginReading()
	end(5, 250, 60)
	end(6, 310, 30)
	s.ReadRunTimes(400, []bpf.ThreadRun{run(1, 101, 700), run(5, 250, 50), run(6, 310, 20)})
	if len(s.runs.threads) != 1 {
		t.Errorf("%d threads are known, want the one that exists", len(s.runs.threads))
	}
	// A thread with the id of an earlier one is another one.
	read(500, run(1, 420, 10))
	check("second window", second, map[uint32]time.Duration{5: 40, 6: 30, 1: 10})

	// The record of a thread may be read after a reading that began after its end.
	end(7, 430, 70)
	check("second window, a late record", second, map[uint32]time.Duration{5: 40, 6: 30, 1: 10, 7: 70})

	// A reading that failed changes nothing. Threads whose end was not seen are forgotten in the
	// end.
	s.BeginReading()
	s.ReadRunTimes(600, nil)
	for i := range time.Duration(vanished + 2) {
		read(700 + i)
	}
	if len(s.runs.threads) != 0 {
		t.Errorf("%d threads are known, and none exists", len(s.runs.threads))
	}
	check("second window, later", second, map[uint32]time.Duration{5: 40, 6: 30, 1: 10, 7: 70})
}

// Threads that end in a window in which waits are followed count for the time that they existed in
// it, and for what they ran.
func TestEndedTimes(t *testing.T) {
	const pid, start = 7, 100
	s := NewState(StateOptions{})
	header := bpf.Header{Pid: pid, Start: start}
	p := s.Process(&header)
	ahead := proc.SinceBoot() - proc.Monotonic()
	s.BeginReading()
	s.ReadRunTimes(1, []bpf.ThreadRun{})
	w := NewWindow(nil)
	w.Waits = true
	s.Open(w)
	const second = uint64(time.Second)
	began := uint64(w.Began)
	for tid, born := range map[uint32]uint64{8: began + second, 9: began + 2*second} {
		end := bpf.ThreadEnd{Born: born + uint64(ahead), Ran: second / 4, Switches: 1}
		end.Header.Pid, end.Header.Tid, end.Header.Start, end.Header.Time = pid, tid, start, born+second
		s.ThreadEnded(&end)
	}
	w.AddEndedTimes()
	times := w.EventSet(p).ByKind(profile.OffCPU).ThreadTimes()
	// The two clocks are read one after the other.
	if len(times) != 1 || times[0].TID != profile.EndedThreads || times[0].On != time.Second/2 ||
		times[0].Wall.Round(time.Second/10) != 2*time.Second {
		t.Errorf("%+v", times)
	}
}

// The threads of a window are bounded. The run times of further ones are kept together.
func TestManyRunTimes(t *testing.T) {
	w := NewWindow(nil)
	for i := range maxThreadTimes + 100 {
		w.addRunTime(Life{PID: 1 + i%10}, uint32(i), RunTime{Ran: 1})
	}
	for i := range maxThreadTimes + 100 {
		w.addRunTime(Life{PID: 100 + i}, 1, RunTime{Ran: 1})
	}
	threads, ran := 0, time.Duration(0)
	for _, l := range w.RunTimes {
		threads += len(l.Threads)
		for _, r := range l.Threads {
			ran += r.Ran
		}
		ran += l.Rest.Ran
	}
	if threads != maxThreadTimes || len(w.RunTimes) > maxThreadTimes+1 || ran != 2*(maxThreadTimes+100) {
		t.Errorf("%d threads and %d processes have %d ns, want %d, that many and %d", threads, len(w.RunTimes), ran,
			maxThreadTimes, 2*(maxThreadTimes+100))
	}
}
