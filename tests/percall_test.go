package tests

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// handle is the method of events.Requests whose calls are counted.
const handle = "guest.Requests.handle"

// startRequests starts the program, with the method compiled.
func startRequests(t *testing.T, jdk jvm.JDK) *events.Guest {
	t.Helper()
	guest := startEvents(t, jdk, events.Requests)
	if _, err := guest.Run(1, 1); err != nil {
		t.Fatal(err)
	}
	return guest
}

// The wall time of a counted method by its calls is how long a call takes.
func TestRecordWallPerCall(t *testing.T) { onEveryJDK(t, recordWallPerCall) }

func recordWallPerCall(t *testing.T, jdk jvm.JDK) {
	guest := startRequests(t, jdk)
	p, truth := recordEvents(t, guest, "wall", 3, 5000, "--count="+handle, "--breakpoints=always", "--budget=50%")
	checkMean(t, p, truth)
	path := filepath.Join(t.TempDir(), "wall.pb.gz")
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	text := mustSucceed(t, "report", "--per=calls:"+handle, path).stdout
	t.Log(text)
	for _, want := range []string{handle, " each (", "socket", "guest.Requests.receive"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// checkMean compares what a call takes on average, and the parts of it, with the program's account.
func checkMean(t *testing.T, p *profile.Profile, truth events.Truth) {
	t.Helper()
	calls, value := column(t, p, "calls"), column(t, p, "wall")
	n, sums := 0.0, map[string]float64{}
	for _, s := range p.Sample {
		n += calls(s)
		if slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
			return slices.ContainsFunc(l.Line, func(l profile.Line) bool { return l.Function.Name == handle })
		}) && value(s) > 0 {
			sums[s.Label["cause"][0]] += value(s)
			sums["all"] += value(s)
		}
	}
	var want struct{ all, ran, sleep, monitor, socket float64 }
	for _, c := range truth.Calls {
		want.all += float64(c.Length)
		want.ran += float64(c.Ran)
		want.sleep += float64(c.Sleep)
		want.monitor += float64(c.Monitor)
		want.socket += float64(c.Socket)
	}
	const within = 0.05
	if off := n/float64(len(truth.Calls)) - 1; math.Abs(off) > within {
		t.Errorf("%.0f calls, %d in truth", n, len(truth.Calls))
	}
	each, truly := sums["all"]/n, want.all/float64(len(truth.Calls))
	delayed := sums["runnable"] + sums["throttled"] + sums["safepoint"]
	t.Logf("%.0f calls of %v, %v; in truth %d of %v, %+v", n, time.Duration(each), sums, len(truth.Calls),
		time.Duration(truly), want)
	if math.Abs(each/truly-1) > within {
		t.Errorf("a call takes %v, %v in truth", time.Duration(each), time.Duration(truly))
	}
	for cause, of := range map[string]float64{"running": want.ran, "sleep": want.sleep, "monitor": want.monitor,
		"socket": want.socket} {
		if got := sums[cause] + sums[events.Also[cause]]; math.Abs(got-of) > within*want.all+delayed {
			t.Errorf("calls took %v because of %s, %v in truth", time.Duration(got), cause, time.Duration(of))
		}
	}
}

// column returns the values of a type by sample.
func column(t *testing.T, p *profile.Profile, name string) func(*profile.Sample) float64 {
	t.Helper()
	i := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == name })
	if i < 0 {
		t.Fatalf("the recording has no values of type %s", name)
	}
	return func(s *profile.Sample) float64 { return float64(s.Value[i]) }
}
