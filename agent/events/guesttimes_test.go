package events

import (
	"os"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

func TestGuestTimes(t *testing.T) {
	e, _ := watchingSource()
	p := fold.NewProcess(proc.Identity{PID: os.Getpid()}, true)
	e.state().Table[os.Getpid()] = p
	if times := e.guestTimes(); len(times) != 0 {
		t.Errorf("a process that is not attached has used %v", times)
	}
	p.Attachment.Store(3)
	before := e.guestTimes()
	for start := time.Now(); time.Since(start) < 50*time.Millisecond; {
	}
	after := e.guestTimes()
	if used := before.Until(after); len(after) != 1 || used <= 0 || used > 10*time.Second {
		t.Errorf("this process has used %v, %v since", after, used)
	}
	if used := (budget.Times{}).Until(after); used != 0 {
		t.Errorf("a guest that is new has used %v", used)
	}
	if used := after.Until(before); used != 0 {
		t.Errorf("time went back by %v", used)
	}
	p.Exited.Store(true)
	if times := e.guestTimes(); len(times) != 0 {
		t.Errorf("a process that is gone has used %v", times)
	}
}
