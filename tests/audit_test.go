package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Verdicts of audit on versions whose work is known: a chain of multiplications, of which one
// version has more. The guest counts it. Intervals may miss the truth in one of 10,000 cases; a
// busy machine makes them wider, not wrong.
func TestAuditKnown(t *testing.T) {
	dir := t.TempDir()
	bin, err := guests.BuildAudited(t.Context(), dir)
	if errors.Is(err, guests.ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "guest.sock")
	start := func() (pid string, truth func() map[string][2]float64) {
		guest := exec.CommandContext(t.Context(), bin)
		guest.Env = append(os.Environ(), "VMPROF_SOCKET="+socket)
		in, err := guest.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := guest.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := guest.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = guest.Wait() })
		return strconv.Itoa(guest.Process.Pid), func() map[string][2]float64 { in.Close(); return workOf(t, out) }
	}
	pid, truth := start()
	canary, _ := start()

	audit := func(method string, args ...string) outcome {
		t.Helper()
		got := agent(t, append([]string{"audit", "-p", pid, "--method", method, "--guest-socket", socket, "-d", "60",
			"--confidence=0.9999"}, args...)...)
		t.Logf("%s %v\n%s%s", method, args, got.stdout, got.stderr)
		return got
	}
	verdicts := map[string]string{}
	for _, test := range []struct {
		method, want string
		args         []string
	}{
		{"slower5", "slower than version 0", nil},
		{"hoisted", "faster than version 0 (plain)", []string{"--loops"}},
		{"unrolled", "faster than version 0 (plain)", []string{"--loops"}},
	} {
		got := audit(test.method, test.args...)
		first, _, _ := strings.Cut(got.stdout, "\n")
		verdicts[test.method] = first
		if got.code != 0 || !strings.HasPrefix(first, "version 1") || !strings.Contains(first, test.want) {
			t.Errorf("%s: %q, want that version 1 is %s", test.method, first, test.want)
		}
	}
	got := audit("slower0", "-d", "6")
	if first, _, _ := strings.Cut(got.stdout, "\n"); got.code != 0 ||
		!strings.HasPrefix(first, "no difference that matters: ") && !strings.HasPrefix(first, "undecided: ") {
		t.Errorf("slower0: %q, want no difference", first)
	}
	// Two processes that run the same code: two versions of each are compared. On a busy machine
	// the canary may be found late.
	for attempt := 1; ; attempt++ {
		got = audit("slower0", "-p", canary, "-d", "5")
		n := strings.Count(got.stdout, "process "+canary)
		if got.code == 0 && n >= 2 && strings.Count(got.stdout, "in process "+pid) >= 2 {
			break
		}
		const attempts = 4
		if got.code != 0 || attempt == attempts {
			t.Errorf("a canary: exit code %d, %d lines on process %s", got.code, n, canary)
			break
		}
	}
	for _, test := range []struct{ method, want string }{
		{"short", "too short to time"},
		{"slowre5", "did you mean slower5"},
	} {
		if got := audit(test.method); got.code != 1 || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: exit code %d, want 1 with %q", test.method, got.code, test.want)
		}
	}
	if got := audit("single", "-d", "2"); got.code != 0 || !strings.HasPrefix(got.stdout,
		"nothing to compare: only version 0") {
		t.Errorf("single: exit code %d", got.code)
	}

	for method, work := range truth() {
		var percent, half float64
		_, after, _ := strings.Cut(verdicts[method], " is ")
		if _, err := fmt.Sscanf(after, "%f %% ± %f", &percent, &half); err != nil ||
			!strings.HasPrefix(method, "slower") {
			continue
		}
		// A call costs some nanoseconds of 5,000 in both versions.
		if true := 100 * (work[1]/work[0] - 1); percent-half > true || true > percent+half+0.5 {
			t.Errorf("%s: %s, but version 1 has %.1f %% more work", method, verdicts[method], true)
		}
	}
}

// workOf reads how much work an invocation of each method is, by version.
func workOf(t *testing.T, out io.Reader) map[string][2]float64 {
	t.Helper()
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	work := map[string][2]float64{}
	for line := range strings.Lines(string(text)) {
		var method string
		var version int
		var calls, steps float64
		if _, err := fmt.Sscan(line, &method, &version, &calls, &steps); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		both := work[method]
		both[version&1] = steps / calls
		work[method] = both
	}
	if len(work) == 0 {
		t.Fatal("the guest says nothing of its work")
	}
	return work
}

// Two stock JVMs of which one does half as much work again in a method: audit finds that from
// outside, and no difference between two that do the same.
func TestAuditStockJVMs(t *testing.T) {
	needs.Root(t, "hardware breakpoints")
	breakpoints.Need(t)
	jdk := needs.JDK(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pids := make([]string, 2)
	for i, slow := range []int{0, 50} {
		guest, err := guests.Start(t.Context(), jdk, guests.Paced(slow), guests.Flavour{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { guest.Close() })
		if _, err := guest.Await(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
		pids[i] = strconv.Itoa(guest.PID())
	}
	// Code that is the same may run at different speeds in two processes, by its place in the
	// caches: by a few percent.
	percent := regexp.MustCompile(`is ([0-9.]+) % ± ([0-9.]+) (slower|faster) than version `)
	for method, least := range map[string]float64{"guest.Paced.heavy": 30, "guest.Paced.light": 0} {
		got := mustSucceed(t, "audit", "-p", pids[0], "-p", pids[1], "--method", method, breakpoints.Flag, "-d",
			map[float64]string{30: "60", 0: "10"}[least])
		t.Log(got.stdout)
		difference, within := 0.0, 0.0
		for _, m := range percent.FindAllStringSubmatch(got.stdout, -1) {
			var errs [2]error
			difference, errs[0] = strconv.ParseFloat(m[1], 64)
			within, errs[1] = strconv.ParseFloat(m[2], 64)
			if errs != [2]error{} || m[3] == "faster" {
				difference = -difference
			}
		}
		if difference+within < least || difference-within > least+20 {
			t.Errorf("%s differs by %.1f ± %.1f %%, want about %.0f", method, difference, within, least)
		}
	}
}

// The same by iterations of a loop that calls a method, of which one JVM does half as much work
// again in each.
func TestAuditStockLoops(t *testing.T) {
	needs.Root(t, "hardware breakpoints")
	breakpoints.Need(t)
	jdk := needs.JDK(t)
	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: os.DirFS("../agent/collect/timing/hotspot/testdata"),
		Only: []string{"Loops.java"}, Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, rounds := range []string{"40000", "60000"} {
		guest, err := jvm.Start(context.WithoutCancel(t.Context()), jvm.Command{
			JDK: jdk, Classpath: []string{classes}, Main: "Loops", Args: []string{"calling", "100", rounds},
			// Versions of C1 would be compared, too, until there are those of C2.
			Flags: []string{"-Xmx64m", "-XX:-TieredCompilation", "-XX:CompileCommand=quiet",
				"-XX:CompileCommand=dontinline,Loops::*"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := guest.Close(); err != nil {
				t.Error(err)
			}
		})
		if answer, err := guest.Order("truth"); err != nil { // a second, in which it is compiled
			t.Fatal(answer, err)
		}
		pids = append(pids, strconv.Itoa(guest.PID()))
	}
	expected := regexp.MustCompile("(?m)^an iteration of loop 1 of `Loops.calling` in version #[0-9]+ C2 in process " +
		pids[1] +
		" is ([0-9.]+) % ± ([0-9.]+) slower than version #[0-9]+ C2 in process " + pids[0] + " ")
	var verdict []string
	var text string
	for attempt := 1; verdict == nil; attempt++ { // on a busy machine C2 may come later
		got := mustSucceed(t, "audit", "-p", pids[0], "-p", pids[1], "--method", "Loops.calling", "--loops",
			"--precision=15", breakpoints.Flag, "-d", "30")
		text = got.stdout
		t.Log(text)
		const attempts = 4
		if verdict = expected.FindStringSubmatch(text); verdict == nil && attempt == attempts {
			t.Fatal("no verdict on C2's versions")
		}
	}
	difference, _ := strconv.ParseFloat(verdict[1], 64)
	within, _ := strconv.ParseFloat(verdict[2], 64)
	if math.Abs(difference-50) > within+10 || within > 25 {
		t.Errorf("%.1f ± %.1f %% slower, want about 50", difference, within)
	}
	if !strings.Contains(text, "loop 1: Loops.java:") || !strings.Contains(text, "one iteration ") {
		t.Error("nothing says which loop that is, and what was timed of it")
	}
}
