package tests

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// windowProgram is for --window-exec: it keeps each part of a window in the directory parts. It
// hangs on CPU time; of the others it counts the parts, and labels the guest.
const windowProgram = `#!/bin/sh
kept=$(mktemp "%[1]s/parts/$VMPROF_KIND.XXXXXX")
cat >"$kept"
mv "$kept" "$kept.pb.gz"
[ "$VMPROF_KIND" != cpu ] || exec sleep 1000
printf '# TYPE parts_total counter\nparts_total{kind="%%s"} 1\nprocess_labels{pid="%[2]d",team="checkout"} 1\n' "$VMPROF_KIND"
`

// TestServeOwn: the user's own numbers of a window. A rule has what report says of the same window,
// a program has its metrics, labels the process, and loses nothing but the part of the window that
// it hangs on. The window has its slowest calls, too.
func TestServeOwn(t *testing.T) {
	t.Parallel() // most of it is the wait for a window
	needs.Root(t, "sampling")
	guest := startRequests(t, needs.JDK(t))
	// The program runs as another user, who cannot enter directories of tests.
	dir, err := os.MkdirTemp("", "own")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, parts := filepath.Join(dir, "program"), filepath.Join(dir, "parts")
	if err := os.WriteFile(program, fmt.Appendf(nil, windowProgram, dir, guest.PID()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(parts, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, parts: os.ModeSticky | 0o777} { // whatever the umask is
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}

	// Two parts fit into a window, so that none is lost on a busy machine.
	const where = `stack.anyMatches("^guest[.]Requests[.]handle$") && cause != "running"`
	url := serve(t, "-F", strconv.Itoa(frequency), "-e", "cpu,wall", "-p", strconv.Itoa(guest.PID()), "--slow="+handle,
		"--breakpoints=always", "--budget=50%",
		"--rule", "waiting: sum(wall) by cause where "+where, "--rule", "slowest: sum(slow)", "--window-exec="+program,
		"--window-exec-timeout=4s")
	defer repeat(t, func() error {
		_, err := guest.Run(3, 1000)
		return err
	})()

	var body string
	eventually(t, "each whole window has an answer and a timeout", func() bool {
		_, body = profiler.Get(t, url+"/metrics")
		runs := metricOf(body, "vmprof_window_exec_runs_total")
		return runs > 0 && metricOf(body, `vmprof_custom_parts_total{kind="wall"}`) == runs &&
			metricOf(body, `vmprof_window_exec_failures_total{cause="timeout"}`) == runs
	})
	if got := metricOf(body, "vmprof_window_exec_series"); got != 1 {
		t.Errorf("the program has %v series, and reported one", got)
	}
	t.Run("rule", func(t *testing.T) {
		var reported map[string]float64 // seconds by cause
		eventually(t, "the rule has what report says of the same windows", func() bool {
			_, body := profiler.Get(t, url+"/metrics")
			files, err := filepath.Glob(filepath.Join(parts, "wall.*.pb.gz"))
			if err != nil {
				t.Fatal(err)
			}
			reported = reportedSeconds(t, where, files)
			computed := map[string]float64{}
			for _, series := range regexp.MustCompile(`(?m)^vmprof_rule_seconds_total\{group="(.*)",rule="waiting"\} `).FindAllStringSubmatch(body, -1) {
				computed[series[1]] = metricOf(body, strings.TrimSpace(series[0]))
			}
			return len(reported) > 0 && maps.EqualFunc(computed, reported,
				func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
		})
		for _, cause := range []string{"sleep", "socket"} { // the program does both in each slow call
			if reported[cause] <= 0 {
				t.Errorf("no time of %s in %v", cause, reported)
			}
		}
	})
	t.Run("slow calls", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(parts, "wall.*.pb.gz"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no windows: %v", err)
		}
		if calls := slowCalls(t, readProfile(t, files[0])); len(calls) == 0 {
			t.Error("the window has no slow calls")
		}
		if metricOf(body, `vmprof_rule_seconds_total{group="",rule="slowest"}`) == 0 {
			t.Error("the rule of slow calls has no time")
		}
		text := mustSucceed(t, "report", "--view=slow", `--where="team" in labels && labels["team"] == "checkout"`, url+
			"/profiles/wall?seconds=2").stdout
		for _, want := range []string{"Slow calls", handle, events.Thread} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	})
}

// reportedSeconds is the wall time by cause that report finds in files under a condition.
func reportedSeconds(t *testing.T, where string, files []string) map[string]float64 {
	t.Helper()
	if len(files) == 0 {
		return nil
	}
	// With a price of one for each nanosecond, the values are in a file, and not rounded for
	// people.
	path, model := output(t, "where.pb.gz"), output(t, "model.yaml")
	if err := os.WriteFile(model, []byte("name: time\nunit: ns\nresolution: one\nprices:\n- of: wall\n  price: 1\n  "+
		"per: ns\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustSucceed(t, append([]string{"report", "--where=" + where, "--cost=" + model, "-o", path}, files...)...)
	seconds := map[string]float64{}
	for _, s := range readProfile(t, path).Sample {
		seconds[s.Label["cause"][0]] += float64(s.Value[0]) / 1e9
	}
	return seconds
}

// metricOf is the value of a series, 0 if there is none.
func metricOf(body, series string) float64 {
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			value, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return value
		}
	}
	return 0
}

func readProfile(t *testing.T, path string) *profile.Profile {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
