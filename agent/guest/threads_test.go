package guest

import (
	"strconv"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

func TestThreadName(t *testing.T) {
	p := NewProcess(proc.Identity{PID: 1})
	p.task = "java"
	if got := p.ThreadName(7, "http-nio-8080-e"); got != "http-nio-8080-e" {
		t.Errorf("before names were read: %s", got)
	}
	p.threadNames.known.Store(&knownNames{"java", map[uint32][]string{
		7: {"http-nio-8080-exec-1"}, 8: {"C2 CompilerThread0"}, 9: {""}, 11: {"blue-task-of-the-pool", "red-task"},
		12: {"long-name-🔥🔥🔥-end"}, 13: {"🔥🔥 many"},
	}})
	for _, test := range []struct {
		tid        int
		comm, want string
	}{
		{7, "http-nio-8080-e", "http-nio-8080-exec-1"},
		{7, "java", "http-nio-8080-exec-1"}, // JDK 8
		{7, "GC Thread#1", "GC Thread#1"},   // another thread by now
		{7, "h", "h"},                       // no thread is called so
		{8, "C2 Comp..hread0", "C2 CompilerThread0"},
		{8, "C2 Comp..hread1", "C2 Comp..hread1"},
		{9, "GC Thread#0", "GC Thread#0"},
		{10, "new", "new"},
		{11, "red-task", "red-task"},
		{11, "blue-task-of-th", "blue-task-of-the-pool"},
		{11, "java", "blue-task-of-the-pool"},
		{11, "other-task", "other-task"},
		{12, "long-name-", "long-name-🔥🔥🔥-end"}, // the kernel has half of a character more
		{13, "🔥🔥", "🔥🔥 many"},                   // and here a blank and two letters
	} {
		if got := p.ThreadName(test.tid, test.comm); got != test.want {
			t.Errorf("%d, %s: %s, want %s", test.tid, test.comm, got, test.want)
		}
	}
}

// Names are asked for once, until they are read, and again when they are old.
func TestMissesThreadName(t *testing.T) {
	p := NewProcess(proc.Identity{PID: 1})
	if p.MissesThreadName(7, []byte("main\x00"), time.Second) {
		t.Error("of a process without a VM")
	}
	p.Attachment.Store(1)
	if !p.MissesThreadName(7, []byte("main\x00"), time.Second) ||
		p.MissesThreadName(8, []byte("main\x00"), time.Second) {
		t.Error("not asked for once")
	}
	p.threadNames.wanted.Store(false)
	p.threadNames.known.Store(&knownNames{"java", map[uint32][]string{7: {"main"}}})
	p.threadNames.read.Store(int64(time.Second))
	p.threadNames.next.Store(int64(2 * time.Second))
	for _, test := range []struct {
		tid  uint32
		at   time.Duration
		want bool
	}{{7, 3 * time.Second, false}, {8, time.Second, false}, {8, 3 * time.Second, true}, {7, time.Hour, true}} {
		if got := p.MissesThreadName(test.tid, []byte("main\x00"), test.at); got != test.want {
			t.Errorf("%d at %v: %v", test.tid, test.at, got)
		}
		p.threadNames.wanted.Store(false)
	}
	for comm, want := range map[string]bool{"main": false, "java": false, "worker": true} {
		if got := p.MissesThreadName(7, []byte(comm), 3*time.Second); got != want {
			t.Errorf("%s: %v", comm, got)
		}
		p.threadNames.wanted.Store(false)
	}
	for tid := range uint32(2 * maxThreadNames) {
		p.MissesThreadName(tid, []byte("main\x00"), time.Hour)
	}
	if n := len(p.threadNames.missing); n > maxThreadNames {
		t.Errorf("%d names are missing", n)
	}
}

// The names that a thread had are kept, the last ones.
func TestWithName(t *testing.T) {
	var names []string
	for i := range 2 * maxNamesOfOne {
		names = withName(names, strconv.Itoa(i))
	}
	names = withName(names, strconv.Itoa(2*maxNamesOfOne-2))
	if len(names) != maxNamesOfOne || names[0] != "30" || names[1] != "31" || names[2] != "29" {
		t.Errorf("%q", names)
	}
}
