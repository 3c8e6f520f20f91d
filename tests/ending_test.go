package tests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// sampling starts a recording without an end beside a guest, and waits until it samples.
func sampling(t *testing.T, guest *guests.Guest) *profiler.AgentRun {
	t.Helper()
	run, err := built.Start(t.Context(), profiler.Options{PID: guest.PID(), Frequency: frequency})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitSampling(); err != nil {
		t.Fatal(err)
	}
	return run
}

func TestInterruptedRecordingIsWritten(t *testing.T) {
	guest := start(t, "Plain")
	recording, err := sampling(t, guest).Stop()
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, recording.Profile)
	if err := recording.Stats.CheckIdentities(); err != nil {
		t.Error(err)
	}
}

// A JVM that ends, or that is killed, ends the recording: what there is is written.
func TestGuestEndsMeanwhile(t *testing.T) {
	for name, end := range map[string]func(*guests.Guest) error{
		"ends":   func(g *guests.Guest) error { return g.Close() },
		"killed": func(g *guests.Guest) error { return g.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			guest := start(t, "Plain")
			run := sampling(t, guest)
			if _, err := guest.Await(t.Context(), time.Now()); err != nil { // for some samples
				t.Fatal(err)
			}
			if err := end(guest); err != nil {
				t.Fatal(err)
			}
			recording, err := run.Finish()
			if err != nil {
				t.Fatal(err)
			}
			checkHeavy(t, recording.Profile)
			if err := recording.Stats.CheckIdentities(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that ends while the agent starts is an error, and a file that was there before stays as
// it is.
func TestEndedBeforeRecordingKeepsTheFile(t *testing.T) {
	needs.Root(t, "sampling")
	short := exec.CommandContext(t.Context(), "/bin/sleep", "0.05")
	if err := short.Start(); err != nil {
		t.Fatal(err)
	}
	defer short.Wait() // until then it is a zombie, as of a shell that does not wait
	path, before := filepath.Join(t.TempDir(), "keep.pb.gz"), []byte("a good profile")
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	got := agent(t, "record", "-p", strconv.Itoa(short.Process.Pid), "-d", "3", "-o", path)
	if want := fmt.Sprintf("process %d ended before recording began", short.Process.Pid); got.code != 1 ||
		!strings.Contains(got.stderr, want) {
		t.Errorf("exit code %d, want 1 and %q:\n%s%s", got.code, want, got.stdout, got.stderr)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has %d bytes now, want the %d from before (%v)", len(after), len(before), err)
	}
}

// A reader that stands still loses samples, and counts each of them: the guest's deep stacks fill
// the ring at once.
func TestStalledReaderCountsLosses(t *testing.T) {
	guest := start(t, "Recursive")
	run, err := built.Start(t.Context(), profiler.Options{PID: guest.PID(), Frequency: 4000})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitSampling(); err != nil {
		t.Fatal(err)
	}
	if err := run.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	before := cpuTime(t, guest.PID())
	eventually(t, "the guest makes some 60 MB of stacks", func() bool {
		return cpuTime(t,
			guest.PID())-before >= 5*time.Second
	})
	if err := run.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before = cpuTime(t, guest.PID())
	eventually(t, "the guest goes on", func() bool { return cpuTime(t, guest.PID())-before >= 500*time.Millisecond })
	recording, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	stats := recording.Stats
	if stats.Lost() == 0 || stats.Delivered == 0 {
		t.Errorf("%d delivered, %v dropped: want some of both", stats.Delivered, stats.Dropped)
	}
	if err := stats.CheckIdentities(); err != nil {
		t.Error(err)
	}
	m, err := stored.MetadataOf(recording.Profile)
	if err != nil {
		t.Fatal(err)
	}
	if lost := profile.Sum(m.Samples.Dropped) + profile.Sum(m.Samples.Discarded); lost != stats.Lost() {
		t.Errorf("the profile has %d lost samples, and not %d:\n%s", lost, stats.Lost(),
			strings.Join(recording.Profile.Comments, "\n"))
	}
}

// kill -9 leaves nothing: no breakpoint in the guest's code, no BPF program in the kernel. The
// guest goes on.
func TestKilledAgentLeavesNothing(t *testing.T) {
	guest := start(t, "Plain")
	run := sampling(t, guest)
	if patched(t, guest.PID(), "libjvm.so") == 0 {
		t.Error("the agent put no probe into libjvm, so this test cannot see one that is left")
	}
	programs := programsOf(t, run.PID())
	if len(programs) == 0 {
		t.Fatal("the agent has no BPF programs, so this test cannot see one that is left")
	}
	if err := run.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	run.Wait() // it was killed

	eventually(t, "libjvm's code is as its file has it", func() bool {
		return patched(t, guest.PID(),
			"libjvm.so") == 0
	})
	eventually(t, "the agent's BPF programs are gone", func() bool {
		for _, id := range programs {
			program, err := ebpf.NewProgramFromID(id)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			program.Close()
			return false
		}
		return true
	})
	if _, err := guest.Await(t.Context(), time.Now()); err != nil {
		t.Errorf("the guest is hurt: %v", err)
	}
	run = sampling(t, guest) // another agent works as the first one did
	if _, err := guest.Await(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	recording, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, recording.Profile)
}

// patched returns how many bytes of a file's executable pages the process has otherwise than the
// file.
func patched(t *testing.T, pid int, file string) (n int) {
	t.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := process.ProcMaps()
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	found := false
	for _, m := range maps {
		if !m.Perms.Execute || filepath.Base(m.Pathname) != file {
			continue
		}
		found = true
		content, err := os.ReadFile(m.Pathname)
		if err != nil {
			t.Fatal(err)
		}
		code := make([]byte, m.EndAddr-m.StartAddr)
		if _, err := memory.ReadAt(code, int64(m.StartAddr)); err != nil {
			t.Fatal(err)
		}
		for i, b := range content[m.Offset:min(m.Offset+int64(len(code)), int64(len(content)))] {
			if code[i] != b {
				n++
			}
		}
	}
	if !found {
		t.Fatalf("process %d does not map %s", pid, file)
	}
	return n
}

// programsOf returns the ids of the BPF programs that a process holds.
func programsOf(t *testing.T, pid int) []ebpf.ProgramID {
	t.Helper()
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	var ids []ebpf.ProgramID
	for _, info := range infos {
		file, err := os.Open(info)
		if err != nil {
			continue // closed meanwhile
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var id ebpf.ProgramID
			if n, _ := fmt.Sscanf(lines.Text(), "prog_id: %d", &id); n == 1 {
				ids = append(ids, id)
			}
		}
		file.Close()
	}
	return ids
}
