package tests

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// TestCallsServe: a server has the calls of a cooperating guest, beside where its time goes.
func TestCallsServe(t *testing.T) {
	guest := startVM(t, "virtual")
	url := serve(t, guest.args("-e", "cpu,calls")...)
	if err := guest.WaitForAgent(); err != nil {
		t.Fatal(err)
	}
	defer repeat(t, func() error {
		_, err := guest.RunFor(100 * time.Millisecond)
		return err
	})()

	t.Run("profile", func(t *testing.T) {
		for name, want := range map[string]string{"calls": "calls", "cpu": "samples"} {
			status, body := profiler.Get(t, fmt.Sprintf("%s/profiles/%s?seconds=2&pid=%d", url, name, guest.Pid()))
			if status != http.StatusOK {
				t.Fatalf("%s: status %d: %s", name, status, body)
			}
			p, err := profile.ParseData([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if len(p.SampleType) == 0 || p.SampleType[0].Type != want || len(p.Sample) == 0 {
				t.Errorf("%s: %d samples of types %v", name, len(p.Sample), p.SampleType)
			}
			if name == "calls" && callEdges(t, p).Callees()["Shape0.hash"] == 0 {
				t.Errorf("no calls of Shape0.hash:\n%v", p)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) {
		hot := regexp.MustCompile(`(?m)^vmprof_calls_total\{.*engine="page".*"Shape0\.hash".*\} (\S+)$`)
		eventually(t, "the hot method's calls have a metric", func() bool {
			_, body := profiler.Get(t, url+"/metrics")
			match := hot.FindStringSubmatch(body)
			if match == nil {
				return false
			}
			calls, err := strconv.ParseFloat(match[1], 64)
			return err == nil && calls > 0
		})
	})
}
