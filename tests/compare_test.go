package tests

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Of two runs of one program, compare says no more than what the guests measured themselves, and it
// finds a method that is 10 % slower. All are recorded at the same time, so that they share what
// the machine does. A method has a sixth of a CPU: 10,000 samples in 15 s, so an interval of at
// most 4 points where the machine is not busy.
func TestCompareKnown(t *testing.T) {
	needs.Root(t, "sampling")
	const (
		recording = 15 * time.Second
		slow      = 10 // percent
		window    = "0.5"
	)
	jdk := needs.JDK(t)
	programs := []int{0, 0, slow}
	running := make([]*guests.Guest, len(programs))
	for i, percent := range programs {
		guest, err := guests.Start(t.Context(), jdk, guests.Paced(percent), guests.Flavour{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { guest.Close() })
		running[i] = guest
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, guest := range running {
		if _, err := guest.Await(ctx, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for _, guest := range running {
		optimized(t, jdk, guest.PID(), "guest.Paced.heavy", "guest.Paced.light")
	}
	dir := t.TempDir()
	paths, failures := make([]string, len(programs)), make(chan error, len(programs))
	began := time.Now()
	for i, guest := range running {
		paths[i] = filepath.Join(dir, fmt.Sprintf("%d.pb.gz", i))
		command := exec.CommandContext(ctx, built.Path, "record", "-p", strconv.Itoa(guest.PID()), "-d",
			recording.String(), "--window", window, "-F", "3999", "-o", paths[i])
		go func() {
			text, err := command.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, text)
			}
			failures <- err
		}()
	}
	for range running {
		if err := <-failures; err != nil {
			t.Fatal(err)
		}
	}
	ended := time.Now()
	truths := make([]guests.Truth, len(programs))
	for i, guest := range running {
		var err error
		if truths[i], err = guest.Truth(began, ended); err != nil {
			t.Fatal(err)
		}
	}
	for b := 1; b < len(programs); b++ {
		// As many requests on both sides: 200 a second.
		got := mustSucceed(t, "compare", "-n", "0", "--width=0", "--per=3000", paths[0], paths[b])
		t.Logf("%s", got.stdout)
		checkCompared(t, got.stdout, truths[0], truths[b])
		if !strings.Contains(got.stdout, "one process per side: run-to-run JIT variation is not included") {
			t.Error("the output does not say that there is one process per side")
		}
	}
}

// A recording says itself how it differs from an earlier one of the same program.
func TestRecordAgainst(t *testing.T) {
	needs.Root(t, "sampling")
	guest, err := guests.Start(t.Context(), needs.JDK(t), guests.Paced(0), guests.Flavour{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	dir, pid := t.TempDir(), strconv.Itoa(guest.PID())
	before, after := filepath.Join(dir, "before.pb.gz"), filepath.Join(dir, "after.pb.gz")
	mustSucceed(t, "record", "-p", pid, "-d", "3", "--window=0.1", "-o", before)
	got := mustSucceed(t, "record", "-p", pid, "-d", "3", "--window=0.1", "--against="+before, "--per=600", "-o", after)
	_, compared, _ := strings.Cut(got.stdout, "A: "+before+"; B: "+after+"\n")
	// On a busy machine a program may not run in some windows.
	for _, want := range []string{" ms of CPU per unit ", `[1-9]\d? \+ [1-9]\d? windows`,
		"run-to-run JIT variation is not included"} {
		if !regexp.MustCompile(want).MatchString(strings.Join(strings.Fields(compared), " ")) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	if again := mustSucceed(t, "compare", "--per=600", before, after); !strings.HasPrefix(compared,
		strings.SplitAfter(again.stdout, "\n")[0]) {
		t.Errorf("compare says\n%s\nand record\n%s", again.stdout, compared)
	}
}

// checkCompared fails where the comparison and the guests' own clocks disagree by more than the
// interval and a point: what the ledgers lack at both ends of the recording is less. A verdict must
// have the right sign. It must be there where the truth is so far beyond the minimum effect of 1 %
// that an estimate anywhere in its interval gives one: on a busy machine intervals are wide, and
// what is undecided is right.
func checkCompared(t *testing.T, text string, a, b guests.Truth) {
	t.Helper()
	const tolerance = 1
	change := func(before, after time.Duration) float64 { return 100 * (float64(after)/float64(before) - 1) }
	whole, _, _ := strings.Cut(text, ":")
	if truth := change(a.CPU, b.CPU); math.Abs(truth) < tolerance && strings.HasPrefix(whole, "B is ") &&
		!strings.HasPrefix(whole, "B is as fast as A") {
		t.Errorf("%q, but it is %.2f %% by the guests' clocks", whole, truth)
	}
	for i, claim := range a.Claims {
		truth := change(claim.CPU, b.Claims[i].CPU)
		row, found := rowOf(text, claim.Name)
		if !found {
			t.Errorf("no row of %s", claim.Name)
			continue
		}
		t.Logf("%s: %.2f %% by the guests' clocks, %+v", claim.Name, truth, row)
		if math.Abs(truth-row.percent) > row.within+tolerance {
			t.Errorf("%s: %.1f %% ± %.1f, but %.1f %% by the guests' clocks", claim.Name, row.percent, row.within,
				truth)
		}
		must := math.Abs(truth) > 1+2*row.within+tolerance
		switch {
		case row.verdict == "slower" && truth > 0, row.verdict == "faster" && truth < 0:
		case row.verdict == "same" && !must, row.verdict == "undecided" && !must:
		default:
			t.Errorf("%s is %s, but changed by %.2f %%", claim.Name, row.verdict, truth)
		}
	}
}

// A comparedRow is a line of the table of compare.
type comparedRow struct {
	percent, within float64
	verdict         string
}

// rowOf returns the line of a method.
func rowOf(text, method string) (row comparedRow, found bool) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 6 || words[5] != method {
			continue
		}
		row.verdict = words[4]
		var errs [2]error
		row.percent, errs[0] = strconv.ParseFloat(strings.TrimSuffix(words[2], "%"), 64)
		row.within, errs[1] = strconv.ParseFloat(strings.TrimSuffix(words[3], "%"), 64)
		return row, errs == [2]error{}
	}
	return row, false
}
