package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	libjvm = "7f0000001000-7f0000003000 r-xp 00001000 fe:00 77 /usr/lib/jvm/lib/server/libjvm.so"
	libc   = "7f0000011000-7f0000013000 r-xp 00001000 fe:00 78 /usr/lib/libc.so.6"
)

// machine has a kernel thread, a shell and JVMs of all kinds.
func machine(t *testing.T) *Env {
	env := healthy(t)
	addProcess(t, env, 2, "kthreadd", 0x200000)
	addProcess(t, env, 20, "bash", 0, libc)
	addProcess(t, env, 30, "java", 0, libc, libjvm)
	addProcess(t, env, 31, "jsvc\x1b[2J", 0, strings.Replace(libjvm, "r-xp", "r--p", 1), libjvm+" (deleted)")
	addProcess(t, env, 32, "eclipse", 0, libjvm)
	addProcess(t, env, 33, "reader", 0, strings.Replace(libjvm, "r-xp", "r--p", 1)) // reads the file, does not run it
	note := "DebugNonSafepoints is off: which inlined method an instruction came from is recorded for calls and " +
		"polls only."
	env.Inspect = func(_ context.Context, pid int, lib *proc.Mapping) (Inspection, error) {
		if !lib.Exec || !strings.HasSuffix(lib.Path, "/libjvm.so") {
			t.Errorf("asked about %+v", lib)
		}
		switch pid {
		case 30:
			return Inspection{"OpenJDK 64-Bit Server VM 17.0.15+6", []Support{{Feature: "Java frames", OK: true},
				{Feature: "inlining", OK: true}, {Feature: "live updates", OK: true}}, []string{note}}, nil
		case 31:
			return Inspection{"OpenJDK 64-Bit Server VM 25+36", []Support{{Feature: "Java frames", OK: true},
				{Feature: "live updates", Reason: "built without USDT probes"}}, []string{note}}, nil
		}
		return Inspection{VM: "OpenJ9\x1b[2J"}, errors.New("its libjvm has no vmStructs")
	}
	return env
}

// unprivileged removes all privileges of root from env.
func unprivileged(env *Env) *Env {
	env.Capable = capabilities()
	env.LoadProgram, env.MakeRingBuffer, env.UprobeMulti = fails(unix.EPERM), fails(unix.EPERM), fails(unix.EPERM)
	env.OpenEvent = func(int) error { return unix.EACCES }
	return env
}

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   *Env
		width int
		ready bool
	}{
		{"ready", machine(t), 80, true},
		{"unprivileged", unprivileged(machine(t)), 80, false},
		{"wide", unprivileged(machine(t)), 200, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Run(t.Context(), tt.env)
			if r.Ready != tt.ready {
				t.Errorf("Ready = %v, want %v", r.Ready, tt.ready)
			}
			var text bytes.Buffer
			if err := r.WriteText(&text, tt.width, false); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text.String()) {
				if n := len(strings.TrimSuffix(line, "\n")); n > min(tt.width, maxWidth) {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			golden(t, tt.name+".txt", text.String())
		})
	}
}

// JVMs that are alike share a line, and so do their notes. With all, each has one.
func TestManyJVMs(t *testing.T) {
	env := machine(t)
	inspect := env.Inspect
	env.Inspect = func(ctx context.Context, pid int, lib *proc.Mapping) (Inspection, error) {
		if pid >= 100 {
			pid = 30
		}
		return inspect(ctx, pid, lib)
	}
	for pid := range 300 {
		addProcess(t, env, 100+pid, "java", 0, libjvm)
	}
	r := Run(t.Context(), env)
	for all, want := range map[bool][]string{
		false: {"301 JVMs", "pids 30, 100, 101, 102, 103 and 296 more", "JVM 31", "JVM 32",
			"on JVM 30, 31, 100, 101, 102 and 297 more"},
		true: {"JVM 30", "JVM 100", "JVM 399", "JVM 31", "397, 398, 399"},
	} {
		var text bytes.Buffer
		if err := r.WriteText(&text, 100, all); err != nil {
			t.Fatal(err)
		}
		for _, s := range want {
			if !strings.Contains(text.String(), s) {
				t.Errorf("all %v: no %q in\n%s", all, s, &text)
			}
		}
		if lines := strings.Count(text.String(), "\n"); (lines > 600) != all || !all && lines > 60 {
			t.Errorf("all %v: %d lines", all, lines)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (rewrite it with -update):\n%s", path, got)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(Run(t.Context(), machine(t)))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Ready  bool
		Checks []struct{ ID, Title, Status, Detail string }
		JVMs   []struct {
			PID              int
			User, Status, VM string
			Reason           string
			Supports         []Support
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !got.Ready || len(got.Checks) != len(checks())+1 || got.Checks[0].ID != "kernel" ||
		got.Checks[0].Status != "ok" {
		t.Errorf("%s", b)
	}
	if len(got.JVMs) != 3 || got.JVMs[0].PID != 30 || got.JVMs[0].User != "user7" || got.JVMs[0].Status != "ok" ||
		got.JVMs[1].Status != "limited" || got.JVMs[2].Reason == "" || got.JVMs[2].VM == "" {
		t.Errorf("%s", b)
	}
}

func TestNoJVMs(t *testing.T) {
	env := healthy(t)
	r := Run(t.Context(), env)
	if !r.Ready || len(r.JVMs) != 0 {
		t.Errorf("%+v", r)
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"jvms":[]`) {
		t.Errorf("%s, %v", b, err)
	}
	env.Proc = "/nowhere"
	if r := Run(t.Context(), env); r.Ready {
		t.Error("ready without procfs")
	}
}

func TestJVMThatEnds(t *testing.T) {
	env := machine(t)
	env.Inspect = func(context.Context, int, *proc.Mapping) (Inspection, error) {
		return Inspection{}, fmt.Errorf("open memory: %w", proc.ErrGone)
	}
	if jvms := Run(t.Context(), env).JVMs; len(jvms) != 0 {
		t.Errorf("%+v", jvms)
	}
}

// TestListedOnly lists JVMs without inspecting them.
func TestListedOnly(t *testing.T) {
	env := machine(t)
	env.Inspect = nil
	for _, j := range Run(t.Context(), env).JVMs {
		if j.Status != Info || j.User != "user7" {
			t.Errorf("%+v", j)
		}
	}
}

// TestHost runs the real checks. Their outcome depends on the machine, but each must have one.
func TestHost(t *testing.T) {
	r := Run(t.Context(), Host())
	for _, f := range r.Findings {
		if f.Status == "" || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	}
	if os.Getenv("CI") == "true" && !r.Ready {
		var text bytes.Buffer
		r.WriteText(&text, 100, false)
		t.Errorf("recording does not work here:\n%s", &text)
	}
}
