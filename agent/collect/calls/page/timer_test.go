//go:build linux

package page

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	headers "github.com/vmprof-agent/vmprof-agent/contrib/guest"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// buildTimed compiles testdata/timed.c with a header.
func buildTimed(t *testing.T, header string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vmprof.h"), []byte(header), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "timed")
	out, err := exec.Command("cc", "-O2", "-Wall", "-Wextra", "-I", dir, "-o", bin, "testdata/timed.c",
		"-lpthread").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip("needs a C compiler")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// A timedGuest is a running testdata/timed.c.
type timedGuest struct {
	in  io.Writer
	out *bufio.Reader
}

func startTimed(t *testing.T, bin, socket string) *timedGuest {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(os.Environ(), "VMPROF_SOCKET="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &timedGuest{in, bufio.NewReader(out)}
}

// run makes the process take all its timings, and returns how many there were: by method, version
// and loop, and lost ones by cause.
func (g *timedGuest) run(t *testing.T, order string) (truth map[[3]uint32]uint64, lost map[string]uint64, taken bool) {
	t.Helper()
	if _, err := io.WriteString(g.in, order+"\n"); err != nil {
		t.Fatal(err)
	}
	truth, lost = map[[3]uint32]uint64{}, map[string]uint64{}
	for {
		line, err := g.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var method, version, loop uint32
		var cause string
		var n uint64
		switch {
		case line == "done\n":
			return truth, lost, taken
		case line == "timing 1\n":
			taken = true
		default:
			if _, err := fmt.Sscanf(line, "lost %s %d", &cause, &n); err == nil {
				lost[cause] = n
			} else if _, err := fmt.Sscanf(line, "%d %d %d %d", &method, &version, &loop, &n); err == nil {
				truth[[3]uint32{method, version, loop}] = n
			}
		}
	}
}

var timedNames = map[string]uint32{"leaf": 1, "recursive": 2, "jumper": 3, "nest": 6, "merged": 7, "deep": 8,
	"flood": 10}

func newTestTimer(t *testing.T, socket string) *Timer {
	t.Helper()
	timer, err := NewTimer(TimerOptions{Socket: socket, Loops: true,
		Method: func(name string) bool { return name != "other" }})
	if err != nil {
		t.Fatal(err)
	}
	return timer
}

// takeAll runs the guest and returns all timings that it took.
func takeAll(
	t *testing.T, timer *Timer, guest *timedGuest,
) (list []timing.Timing, truth map[[3]uint32]uint64, lost map[string]uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var err error
			if list, err = timer.Take(ctx, list); err != nil {
				return
			}
		}
	}()
	wait.For(t, wait.Long, "the timer has the methods to audit, and their versions", func() (all bool) {
		timer.mu.Lock()
		defer timer.mu.Unlock()
		timer.each(func(one *timed) { all = len(one.methods) == 10 && len(one.names) == 2 })
		return all
	})
	truth, lost, taken := guest.run(t, "+")
	if !taken {
		t.Error("the guest took no timings")
	}
	cancel()
	<-ended
	for err := error(nil); err == nil; { // Take reads what is there before it sees that ctx has ended.
		list, err = timer.Take(ctx, list)
	}
	return list, truth, lost
}

func checkTimed(t *testing.T, timer *Timer, list []timing.Timing, truth map[[3]uint32]uint64, lost map[string]uint64) {
	t.Helper()
	stats := timer.Stats()
	got := map[[3]uint32]uint64{}
	shortest := map[[3]uint32]time.Duration{}
	var whole, parts time.Duration // times of nest
	for _, one := range list {
		key := [3]uint32{timedNames[one.Region.Method], uint32(one.Version.ID), one.Region.Loop}
		got[key]++
		if d, seen := shortest[key]; !seen || one.Duration < d {
			shortest[key] = one.Duration
		}
		if one.Region.Method == "nest" {
			parts += one.Part
			if one.Region.Loop == 0 {
				whole += one.Duration
			}
		}
		if want := uint32(1); one.Thread == 0 || one.Region.Method != "merged" && one.Runs != want {
			t.Fatalf("timing %+v", one)
		}
		if one.Region.Method == "merged" && one.Region.Loop == 1 && one.Runs != 4 {
			t.Fatalf("merged timing %+v", one)
		}
		if name := map[uint64]string{0: "plain", 1: "slow"}[one.Version.ID]; one.Region.Method == "leaf" &&
			one.Version.Name != name {
			t.Fatalf("timing %+v, want version %q", one, name)
		}
	}
	full := stats.Lost[causeFull]
	got[[3]uint32{10, 7, 0}] += full
	if full == 0 {
		t.Error("a flood of timings lost none")
	}
	for key, n := range truth {
		if got[key] != n {
			t.Errorf("method %d, version %d, loop %d: %d timings, want %d", key[0], key[1], key[2], got[key], n)
		}
	}
	if len(got) != len(truth) {
		t.Errorf("timings %v, want %v", got, truth)
	}
	for cause, n := range map[string]uint64{causeAbandoned: lost["abandoned"], causeDeep: lost["deep"],
		causeUnmatched: lost["unmatched"]} {
		if stats.Lost[cause] != n {
			t.Errorf("lost %v, want %d %q", stats.Lost, n, cause)
		}
	}
	// The shortest ones, as any may be interrupted. If an inner timer ended its outer one, the
	// outer timing would be shorter than the work.
	for key, least := range map[[3]uint32]time.Duration{
		{1, 0, 0}: 20, {1, 1, 0}: 40, {3, 0, 0}: 50, {6, 0, 0}: 150, {6, 0, 1}: 15, {6, 0, 2}: 5, {7, 0, 0}: 200,
		{7, 0, 1}: 40,
	} {
		least *= time.Microsecond
		if d := shortest[key]; d < least*90/100 || d > 3*least {
			t.Errorf("method %d, version %d, loop %d: at least %v, want %v", key[0], key[1], key[2], d, least)
		}
	}
	if whole == 0 || parts < whole*95/100 || parts > whole*105/100 {
		t.Errorf("the parts of invocations with loops are %v, want %v", parts, whole)
	}
	cost, within := timer.Cost()
	// The clock may be too coarse for an error.
	if cost < 10*time.Nanosecond || cost > 20*time.Microsecond || within < 0 {
		t.Errorf("a timing costs %v ± %v", cost, within)
	}
	t.Logf("%d timings, lost %v, cost %v ± %v", stats.Taken, stats.Lost, cost, within)
}

// Every timing arrives, or is counted as lost: nested ones, recursive ones, loops, and invocations
// that longjmp leaves. It continues with the next timer, and without a timer nothing is timed.
func TestTimer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "guest.sock")
	guest := startTimed(t, buildTimed(t, headers.Header), socket)
	for range 2 {
		if _, _, taken := guest.run(t, "-"); taken {
			t.Fatal("the guest takes timings without an agent")
		}
		timer := newTestTimer(t, socket)
		list, truth, lost := takeAll(t, timer, guest)
		checkTimed(t, timer, list, truth, lost)
		if targets := timer.Targets(); len(targets) != 1 || len(targets[0].Methods) != 11 ||
			len(targets[0].Audited) != 10 || targets[0].Problem != "" {
			t.Errorf("targets %+v", targets)
		}
		if err := timer.Close(); err != nil {
			t.Fatal(err)
		}
		if stats := timer.Stats(); stats.Lost[causeDeep] != lost["deep"] {
			t.Errorf("the losses of a process that has ended are forgotten: %v", stats.Lost)
		}
		if _, err := timer.Take(t.Context(), nil); err == nil {
			t.Error("a closed timer takes timings")
		}
	}
}

// A process whose header does not support timings connects, and the timer reports that.
func TestTimerOldHeader(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "guest.sock")
	old := strings.Replace(headers.Header, "VMPROF_REFUSED_, VMPROF_TIMINGS_ }",
		"VMPROF_REFUSED_, VMPROF_TIMINGS_ = 99 }", 1)
	if old == headers.Header {
		t.Fatal("the header has changed: change this test")
	}
	guest := startTimed(t, buildTimed(t, old), socket)
	timer := newTestTimer(t, socket)
	defer timer.Close()
	wait.For(t, wait.Long, "the guest", func() bool { return len(timer.Targets()) == 1 })
	if _, _, taken := guest.run(t, "-"); taken {
		t.Error("the guest takes timings")
	}
	if targets := timer.Targets(); len(targets) != 1 || !strings.Contains(targets[0].Problem, "vmprof.h") {
		t.Errorf("targets %+v", targets)
	}
	if stats := timer.Stats(); stats.Taken != 0 || len(stats.Lost) != 0 {
		t.Errorf("stats %+v", stats)
	}
}
