package tests

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A scrape is what metrics say of the time of threads when a window was just closed, and what the
// kernel says then.
type scrape struct {
	at      time.Time
	windows int
	causes  map[string]time.Duration // by cause, of all services
	cpu     time.Duration            // CPU time that the process has used
	threads int
}

// windowsTotal is the metric of closed windows.
var windowsTotal = regexp.MustCompile(`(?m)^vmprof_windows_total (\d+)$`)

// scrapeAfter waits until more windows are closed than that, and reads a metric.
func scrapeAfter(t *testing.T, url, metric string, pid, windows int) (s scrape) {
	t.Helper()
	series := regexp.MustCompile(`(?m)^` + metric + `\{cause="([^"]*)",.*\} (\S+)$`)
	closedSeen := false // a scrape collects metrics side by side: only the next one is sure to have all of the window
	eventually(t, fmt.Sprintf("%d windows are closed", windows+1), func() bool {
		_, body := profiler.Get(t, url+"/metrics")
		closed := windowsTotal.FindStringSubmatch(body)
		if closed == nil {
			return false
		}
		s = scrape{at: time.Now(), causes: map[string]time.Duration{}, threads: len(threadsOf(t, pid))}
		s.windows, _ = strconv.Atoi(closed[1])
		var err error
		if s.cpu, err = jvm.CPUTime(pid); err != nil {
			t.Fatal(err)
		}
		for _, found := range series.FindAllStringSubmatch(body, -1) {
			seconds, err := strconv.ParseFloat(found[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			s.causes[found[1]] += time.Duration(seconds * float64(time.Second))
		}
		complete := closedSeen
		closedSeen = s.windows > windows
		return complete
	})
	return s
}

// Windows of a server add up: between two scrapes each thread has the time that passed, on a CPU
// and off it.
func TestServeWaits(t *testing.T) {
	needs.Root(t, "sampling")
	for _, test := range []struct {
		kind, metric, name string
		start              func(t *testing.T) int
	}{
		{"wall", "vmprof_wall_seconds_total", "native", func(t *testing.T) int { return startBusy(t).PID() }},
		{"offcpu", "vmprof_offcpu_seconds_total", "JVM", func(t *testing.T) int { return start(t, "Plain").PID() }},
	} {
		t.Run(test.kind+" "+test.name, func(t *testing.T) {
			t.Parallel()
			pid := test.start(t)
			url := serve(t, "-e", test.kind, "-p", strconv.Itoa(pid), "--budget=20%")
			first := scrapeAfter(t, url, test.metric, pid, 1) // the first window begins before all is attached
			last := scrapeAfter(t, url, test.metric, pid, first.windows+1)
			passed, sum := last.at.Sub(first.at), time.Duration(0)
			var parts []string
			for cause, after := range last.causes {
				part := after - first.causes[cause]
				sum += part
				parts = append(parts, fmt.Sprintf("%s %v", cause, part.Round(time.Millisecond)))
			}
			used := last.cpu - first.cpu
			t.Logf("%d threads, %d then, in %v: %v in all: %s; CPU time %v", first.threads, last.threads, passed, sum,
				strings.Join(parts, ", "), used)
			running := last.causes["running"] - first.causes["running"]
			if test.kind == "offcpu" {
				sum += used
			} else if math.Abs(float64(running-used)) > 0.05*float64(used)+float64(passed)/20 {
				t.Errorf("threads ran for %v, by the kernel's account for %v", running, used)
			}
			// A thread that comes or goes counts with its part. The scrape is a moment later than
			// the window's end.
			fewest, most := min(first.threads, last.threads), max(first.threads, last.threads)
			if low, high := 0.95*float64(fewest)*float64(passed), 1.05*float64(most)*float64(passed); float64(sum) < low || float64(sum) > high {
				t.Errorf("%d to %d threads have %v together in %v", fewest, most, sum, passed)
			}
		})
	}
}
