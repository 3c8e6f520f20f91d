package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// heavy is a method of the guest Plain that is hot in every recording of it.
const heavy = "guest.Plain.heavy"

// checkHeavy fails unless the profile has the guest's hot method.
func checkHeavy(t *testing.T, p *profile.Profile) {
	t.Helper()
	found := stacks.FromProfile(p)
	if n := stacks.Count(found, func(s stacks.Stack) bool { return s.Self(heavy) }); n == 0 {
		t.Errorf("no samples of %s among %d stacks:\n%v", heavy, len(found), p)
	}
}

func TestRecordPID(t *testing.T) {
	guest, path := start(t, "Plain"), output(t, "out.pb.gz")
	got := mustSucceed(t, "record", "-p", strconv.Itoa(guest.PID()), "-d", "1s", "-F", strconv.Itoa(frequency), "-o",
		path)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
	for _, want := range []string{heavy, "status: ", path} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the summary has no %q:\n%s", want, got.stdout)
		}
	}
}

// What is promised of the format: see the documentation of agent/view/sink.
func TestRecordFormat(t *testing.T) {
	guest, path := start(t, "Plain"), output(t, "out.pb.gz")
	mustSucceed(t, "record", "-p", strconv.Itoa(guest.PID()), "-d", "1s", "-F", strconv.Itoa(frequency), "-o", path)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, sampleType := range p.SampleType {
		types = append(types, sampleType.Type+"/"+sampleType.Unit)
	}
	if got := strings.Join(types, " "); got != "samples/count cpu/nanoseconds" {
		t.Errorf("sample types %q", got)
	}
	if p.Period <= 0 || p.PeriodType == nil || p.DurationNanos <= 0 || p.TimeNanos <= 0 {
		t.Errorf("period %d of %v, duration %d, time %d", p.Period, p.PeriodType, p.DurationNanos, p.TimeNanos)
	}
	if len(p.Mapping) == 0 || !strings.HasSuffix(p.Mapping[0].File, "/java") {
		t.Errorf("the first mapping is not the guest's executable: %v", p.Mapping)
	}
	libjvm := false
	for _, mapping := range p.Mapping {
		libjvm = libjvm || strings.HasSuffix(mapping.File, "/libjvm.so") && mapping.BuildID != ""
	}
	if !libjvm {
		t.Error("no libjvm.so with a build id among the mappings")
	}
	for _, sample := range p.Sample {
		for _, label := range []string{"thread", "comm", "runtime"} {
			if len(sample.Label[label]) != 1 {
				t.Fatalf("a sample has %d labels %q: %v", len(sample.Label[label]), label, sample.Label)
			}
		}
		if pids := sample.NumLabel["pid"]; len(pids) != 1 || pids[0] != int64(guest.PID()) {
			t.Fatalf("a sample is of pid %v, not %d", pids, guest.PID())
		}
	}
	if comments := strings.Join(p.Comments, "\n"); !strings.Contains(comments, "DebugNonSafepoints") {
		t.Errorf("no word on DebugNonSafepoints in the comments:\n%s", comments)
	}

	if _, err := exec.LookPath("go"); err != nil {
		needs.Missing(t, err)
	}
	top, err := exec.Command("go", "tool", "pprof", "-top", path).CombinedOutput()
	if err != nil || !bytes.Contains(top, []byte(heavy)) {
		t.Errorf("go tool pprof -top: %v\n%s", err, top)
	}
}

func TestRecordOtherFormats(t *testing.T) {
	guest := start(t, "Plain")
	for _, name := range []string{"out.folded", "out.txt"} {
		t.Run(name, func(t *testing.T) {
			path := output(t, name)
			mustSucceed(t, "record", "-p", strconv.Itoa(guest.PID()), "-d", "1s", "-F", strconv.Itoa(frequency), "-o",
				path)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, []byte(heavy)) {
				t.Errorf("no %s in\n%s", heavy, text)
			}
		})
	}
}

func TestRecordToStandardOutput(t *testing.T) {
	guest := start(t, "Plain")
	got := mustSucceed(t, "record", "-p", strconv.Itoa(guest.PID()), "-d", "1s", "-F", strconv.Itoa(frequency), "-o",
		"-")
	p, err := profile.ParseData([]byte(got.stdout))
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
	if !strings.Contains(got.stderr, heavy) {
		t.Errorf("the summary is not on standard error:\n%s", got.stderr)
	}
}

func TestRecordSeveral(t *testing.T) {
	first, second, path := start(t, "Plain"), start(t, "Recursive"), output(t, "out.pb.gz")
	mustSucceed(t, "record", "-p", strconv.Itoa(first.PID()), "-p", strconv.Itoa(second.PID()),
		"-d", "1s", "-F", strconv.Itoa(frequency), "-o", path)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	pids := make(map[int64]bool)
	for _, sample := range p.Sample {
		pids[sample.NumLabel["pid"][0]] = true
	}
	if len(pids) != 2 || !pids[int64(first.PID())] || !pids[int64(second.PID())] {
		t.Errorf("samples of pids %v, want %d and %d", pids, first.PID(), second.PID())
	}
}

func TestRecordMachine(t *testing.T) {
	start(t, "Plain")
	path := output(t, "out.pb.gz")
	mustSucceed(t, "record", "-d", "1s", "-F", strconv.Itoa(frequency), "-o", path)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
}

// The agent starts a command, and a JVM that the command starts later is profiled too. The guest
// ends with its standard input, two seconds after it is ready.
func TestRecordCommand(t *testing.T) {
	needs.Root(t, "sampling")
	jdk, path := needs.JDK(t), output(t, "out.pb.gz")
	classes, err := guests.Compile(t.Context(), jdk)
	if err != nil {
		t.Fatal(err)
	}
	input := filepath.Join(t.TempDir(), "input")
	if err := unix.Mkfifo(input, 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `input=$1; shift; "$@" <"$input" | { exec 3>"$input"; read -r ready; echo "$ready"; sleep 2; }`
	got := mustSucceed(t, "record", "-F", strconv.Itoa(frequency), "-o", path, "--",
		"sh", "-c", script, "sh", input, jdk.Java(), "-cp", classes, guests.Main, "Plain")
	if !strings.Contains(got.stdout, "ready pid") {
		t.Errorf("the command's output got lost:\n%s", got.stdout)
	}
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
}

// Root's own recording in a directory of the user behind sudo belongs to that user.
func TestRecordBehindSudo(t *testing.T) {
	needs.Root(t, "sampling")
	const user, group = 4711, 4712
	t.Setenv("SUDO_UID", strconv.Itoa(user))
	t.Setenv("SUDO_GID", strconv.Itoa(group))
	path := output(t, "out.pb.gz")
	if err := os.Chown(filepath.Dir(path), user, group); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, "record", "-o", path, "--", "true")
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != user || st.Gid != group {
		t.Errorf("the file belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// A command's failure is the agent's, after it has written what there was.
func TestRecordFailingCommand(t *testing.T) {
	needs.Root(t, "sampling")
	path := output(t, "out.pb.gz")
	got := agent(t, "record", "-o", path, "--", "sh", "-c", "exit 3")
	if got.code == 0 || !strings.Contains(got.stderr, "exit status 3") {
		t.Errorf("ended with %d:\n%s", got.code, got.stderr)
	}
	if _, err := profiler.ReadProfile(path); err != nil {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	guest, path := start(t, "Plain"), output(t, "out.pb.gz")
	mustSucceed(t, "record", "-p", strconv.Itoa(guest.PID()), "-d", "1s", "-F", strconv.Itoa(frequency), "-o", path)
	for _, view := range []string{"methods", "tree"} {
		t.Run(view, func(t *testing.T) {
			got := mustSucceed(t, "report", "--view="+view, path)
			if !strings.Contains(got.stdout, heavy) {
				t.Errorf("no %s in\n%s", heavy, got.stdout)
			}
		})
	}
}
