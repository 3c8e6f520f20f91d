package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/sleeper"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestFollow(t *testing.T) {
	one, other := sleeper.Start(t), sleeper.Start(t)
	var log bytes.Buffer
	l := follow(proc.DefaultRoot, []int{one.Process.Pid, other.Process.Pid, 1 << 30},
		slog.New(slog.NewTextHandler(&log, nil)))
	if !l.look() || l.notes() != nil || log.Len() > 0 {
		t.Fatalf("both run: %q, %s", l.notes(), &log)
	}
	state := func(cmd *exec.Cmd, want bool) {
		t.Helper()
		wait.For(t, wait.Long, fmt.Sprintf("a process that is stopped: %v", want), func() bool {
			stat, err := proc.DefaultRoot.Stat(cmd.Process.Pid)
			return err == nil && (stat.State == 'T') == want
		})
	}
	if err := one.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	state(one, true)
	for range 2 {
		l.looked = l.looked.Add(-10 * time.Second)
		l.began = l.began.Add(-10 * time.Second)
		if !l.look() {
			t.Error("a stopped process is taken for one that ended")
		}
	}
	if err := one.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	state(one, false)
	l.look()
	if got := strings.Join(l.notes(), "\n"); !strings.Contains(got, "process "+strconv.Itoa(one.Process.Pid)+
		" was stopped (SIGSTOP, or by a debugger) for about 15s of 20s") {
		t.Errorf("notes %q", got)
	}
	if n := strings.Count(log.String(), "process is stopped"); n != 1 {
		t.Errorf("%d warnings: %s", n, &log)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, wait.Long, "a process that was killed is gone", func() bool { return !l.look() })
	if got := strings.Join(l.notes(), "\n"); !strings.Contains(got, "process "+strconv.Itoa(other.Process.Pid)+
		" ended after 20s, and the audit with it") {
		t.Errorf("notes %q", got)
	}
}

// An audit ends with its process, and shows what was timed until then.
func TestAuditEnds(t *testing.T) {
	t.Parallel()
	guest := sleeper.Start(t)
	o, err := parseAudit([]string{"-p", "7", "--method", "f", "-d", "60"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.pids, o.engine = []int{guest.Process.Pid}, auditEngines[0]
	time.AfterFunc(2500*time.Millisecond, func() { guest.Process.Kill() })
	began := time.Now()
	var out bytes.Buffer
	engine := fakeEngine{ns: 1000, percent: []float64{0}, random: rand.New(rand.NewPCG(1, 2))}
	err = o.run(t.Context(), struct{ timing.Engine }{&engine}, &out) // which knows no methods, as that of JVMs
	if took := time.Since(began); err != nil || took > 30*time.Second {
		t.Fatalf("%v after %v", err, took)
	}
	for _, want := range []string{"nothing to compare: only version 0 of `f` ran in ", "invocation", "ended after ",
		", and the audit with it"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestAuditSameProcess(t *testing.T) {
	guest := sleeper.Start(t)
	pid := strconv.Itoa(guest.Process.Pid)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"audit", "-p", pid, "-p", pid, "--method", "a.B.c"}, &stdout,
		&stderr); code != 2 ||
		!strings.Contains(stderr.String(), "is the same process each time, "+pid) {
		t.Errorf("exit code %d, %q", code, &stderr)
	}
}

// run is the verb as the user calls it, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Verb{Name: args[0], Run: Run}.Exit(ctx, args[1:], stdout, stderr)
}
