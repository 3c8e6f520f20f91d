package proc

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCPUTime(t *testing.T) {
	before, ok := CPUTime(os.Getpid())
	if !ok || before <= 0 {
		t.Fatalf("own process: %v, %v", before, ok)
	}
	for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
	}
	if after, _ := CPUTime(os.Getpid()); after <= before {
		t.Errorf("%v after %v", after, before)
	}
	if used, ok := CPUTime(1 << 23); ok { // pids end at 4 Mi
		t.Errorf("a process that cannot exist used %v", used)
	}
}

func TestInStep(t *testing.T) {
	const ms = time.Millisecond
	for now := 7 * time.Second; now < 8*time.Second; now += 7 * ms {
		for pause, step := range map[time.Duration]time.Duration{
			100 * ms: wakeStep, 250 * ms: wakeStep, 999 * ms: wakeStep, time.Second: calmStep, 1500 * ms: calmStep,
			10 * time.Second: calmStep,
		} {
			got := inStep(now, pause)
			if (now+got)%step != 0 || got < pause-step/2 || got > pause+step/2 || got <= 0 {
				t.Errorf("inStep(%v, %v) = %v", now, pause, got)
			}
		}
	}
	if got := inStep(time.Second, 20*ms); got != 20*ms {
		t.Errorf("a pause of 20ms has become one of %v", got)
	}
}

func TestThreadCPUTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
	}
	pid, tid := os.Getpid(), unix.Gettid()
	used, err := DefaultRoot.ThreadCPUTime(pid, tid)
	if own := OwnThreadTime(); err != nil || used == 0 || own < time.Duration(used)/2 {
		t.Errorf("used %v, %v, and by its own clock %v", time.Duration(used), err, own)
	}
	if _, err := DefaultRoot.ThreadCPUTime(pid, 1<<23); !errors.Is(err, ErrGone) {
		t.Errorf("a thread that cannot exist: %v", err)
	}
	if name, err := DefaultRoot.ThreadComm(pid, tid); err != nil || name == "" {
		t.Errorf("name %q, %v", name, err)
	}
}
