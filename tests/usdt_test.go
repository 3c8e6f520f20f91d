package tests

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// startPHP starts a PHP program that passes its probes, and ends it with the test.
func startPHP(t *testing.T, p php.Program) *php.Guest {
	t.Helper()
	needs.Root(t, "sampling")
	g, err := php.Start(t.Context(), p, php.Traced)
	if errors.Is(err, php.ErrMissing) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// keepBusy has the guest do rounds until the function that it returns is called, which returns all
// answers.
func keepBusy(t *testing.T, g *php.Guest, rounds int) (stop func() map[string]int) {
	t.Helper()
	answers := map[string]int{}
	end := repeat(t, func() error {
		answer, err := g.Run(rounds)
		if err == nil {
			answers[answer]++
		}
		return err
	})
	return func() map[string]int { end(); return answers }
}

// usdtArgs are the arguments of a recording of PHP's calls.
func usdtArgs(g *php.Guest, more ...string) []string {
	return append([]string{"record", "-e", "calls", "--engine=usdt", "-p", strconv.Itoa(g.PID())}, more...)
}

// untouched checks that nobody's probe is in the guest: neither a breakpoint nor a count in its
// semaphore.
func untouched(t *testing.T, g *php.Guest) {
	t.Helper()
	if v, err := g.Semaphore(); v != 0 || err != nil {
		t.Errorf("semaphore is %d, %v", v, err)
	}
	if same, err := g.Original(); !same || err != nil {
		t.Errorf("the code at the probe is not as it was, %v", err)
	}
}

// TestUSDTRecord: every call gets its share, and neither the guest's results nor its memory are
// changed.
func TestUSDTRecord(t *testing.T) {
	g := startPHP(t, php.Known)
	truth, err := php.Truth()
	if err != nil {
		t.Fatal(err)
	}
	stop := keepBusy(t, g, 2000)
	path := output(t, "calls.pb.gz")
	mustSucceed(t, usdtArgs(g, "-d", "5s", "-F", "97", "--stride=7", "--samples=256", "-o", path)...)
	untouched(t, g)
	if answers := stop(); len(answers) != 1 {
		t.Errorf("the program answered %v", answers)
	}
	got, total := phpCalls(t, path)
	var calls float64
	for _, n := range truth {
		calls += float64(n)
	}
	// A window looks at 1,792 calls, which is 17 rounds. How much each weighs is disturbed where
	// other programs use the CPU: if five windows had all of the weight, five standard deviations
	// of 5 x 256 draws are 7 points for the largest share.
	for c, n := range truth {
		share, want := got[c]/total, float64(n)/calls
		if tolerance := 5 * math.Sqrt(want*(1-want)/(5*256)); math.Abs(share-want) > tolerance {
			t.Errorf("%v: share %.4f, want %.4f within %.4f", c, share, want, tolerance)
		}
	}
}

// TestUSDTPlain: a PHP that does not pass its probe is named, with what to do.
func TestUSDTPlain(t *testing.T) {
	needs.Root(t, "sampling")
	g, err := php.Start(t.Context(), php.Known)
	if errors.Is(err, php.ErrMissing) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	stop := keepBusy(t, g, 2000)
	defer stop()
	path := output(t, "calls.pb.gz")
	mustSucceed(t, usdtArgs(g, "-d", "3s", "-o", path)...)
	if got := mustSucceed(t, "report", path); !strings.Contains(strings.Join(strings.Fields(got.stdout), " "),
		"without USE_ZEND_DTRACE=1") {
		t.Errorf("the report does not say why there are no calls:\n%s", got.stdout)
	}
	untouched(t, g)
}

// phpCalls reads the calls that the usdt engine sampled out of a recording.
func phpCalls(t *testing.T, path string) (map[php.Call]float64, float64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	value := -1
	for i, kind := range p.SampleType {
		if kind.Type == "calls" {
			value = i
		}
	}
	if value < 0 {
		t.Fatalf("no calls in %s", path)
	}
	calls, total := map[php.Call]float64{}, 0.0
	for _, s := range p.Sample {
		if len(s.Label["engine"]) != 1 || s.Label["engine"][0] != "usdt" || len(s.Location) != 2 {
			continue
		}
		callee, caller := s.Location[0].Line[0], s.Location[1].Line[0]
		c := php.Call{Caller: caller.Function.Name, Callee: callee.Function.Name, Line: int(caller.Line)}
		calls[c] += float64(s.Value[value])
		total += float64(s.Value[value])
	}
	if total == 0 {
		t.Fatalf("no calls of PHP in %s", path)
	}
	return calls, total
}

// TestUSDTKilled: an agent that is killed while a probe is attached leaves nothing behind, and the
// guest goes on as if nothing had been.
func TestUSDTKilled(t *testing.T) {
	g := startPHP(t, php.Known)
	stop := keepBusy(t, g, 2000)
	for range 3 {
		// Bursts of this size keep their windows open for as long as they may be.
		record := exec.Command(built.Path, usdtArgs(g, "-d", "600s", "-F", "997", "--stride=31", "--samples=65536",
			"-o", output(t, "calls.pb.gz"))...)
		if err := record.Start(); err != nil {
			t.Fatal(err)
		}
		seen := false // It looks often: the agent is to be killed while the window is open.
		for deadline := time.Now().Add(time.Minute); !seen &&
			time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			v, err := g.Semaphore()
			seen = err == nil && v == 1
		}
		record.Process.Signal(unix.SIGKILL)
		record.Wait()
		if !seen {
			t.Fatal("no window was opened within a minute")
		}
		// The kernel takes out the breakpoint and the count one after the other, maybe after the agent has ended.
		eventually(t, "nobody's probe is in the guest", func() bool {
			v, err := g.Semaphore()
			same, failed := g.Original()
			return errors.Join(err, failed) == nil && v == 0 && same
		})
	}
	if answers := stop(); len(answers) != 1 {
		t.Errorf("the program answered %v", answers)
	}
}
