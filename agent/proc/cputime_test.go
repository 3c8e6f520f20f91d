package proc

import (
	"os"
	"testing"
	"time"
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
