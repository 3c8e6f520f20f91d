package tests

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// TestEventsServe: a server that records events alone, without ticks, has the objects of a JVM by
// class and place, accounts for them, and claims nothing that it does not have.
func TestEventsServe(t *testing.T) {
	needs.Root(t, "sampling")
	guest, err := events.Start(t.Context(), needs.JDK(t), events.Allocating)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	url := serve(t, "-e", "alloc,lock", "-p", strconv.Itoa(guest.PID()), "--budget", "10%")
	eventually(t, "the server is ready", func() bool {
		status, _ := profiler.Get(t, url+"/-/ready")
		return status == http.StatusOK
	})
	defer repeat(t, func() error {
		// A run allocates the same each time, and buffers begin with it: the many ends within one
		// are what is drawn from.
		_, err := guest.Run(1, 10_000_000)
		return err
	})()

	t.Run("profile", func(t *testing.T) {
		status, body := profiler.Get(t, fmt.Sprintf("%s/profiles/alloc?seconds=2&pid=%d", url, guest.PID()))
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
		p, err := profile.ParseData([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := events.Read(p, "alloc_objects", "alloc_space")
		if err != nil {
			t.Fatal(err)
		}
		shares := map[string]float64{} // shares of the objects, by class
		all := 0.0
		for _, row := range recorded {
			shares[row.Class] += row.Values[0]
			all += row.Values[0]
		}
		// 3,500 of 10,000 objects are pairs, and 4,000 bare. What else the run needs is little.
		for class, want := range map[string]float64{"guest.Allocating$Pair": 0.35, "guest.Allocating$Bare": 0.4} {
			if got := shares[class] / all; got < want-0.15 || got > want+0.15 {
				t.Errorf("%.2f of the objects are a %s, want about %.2f; of %.0f in all\n%v", got, class, want, all,
					shares)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) {
		_, body := profiler.Get(t, url+"/metrics")
		value := regexp.MustCompile(`(?m)^vmprof_event_samples_folded_total (\S+)$`).FindStringSubmatch(body)
		if value == nil || value[1] == "0" {
			t.Errorf("events folded: %q", value)
		}
		for _, not := range []string{"vmprof_cpu_seconds_total", "vmprof_samples_", "vmprof_frames_",
			"vmprof_stopped_seconds_total"} {
			if strings.Contains(body, "\n"+not) {
				t.Errorf("there is %s, although nothing ticks", not)
			}
		}
		if !strings.Contains(body, "\nvmprof_ready 1\n") {
			t.Error("it is not ready")
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for kind, want := range map[string]string{"cpu": "serve -e cpu,alloc,lock",
			"safepoint": "serve -e alloc,lock,safepoint"} {
			if status, body := profiler.Get(t, url+"/profiles/"+kind+"?seconds=1"); status != http.StatusNotFound ||
				!strings.Contains(body, want) {
				t.Errorf("%s: status %d: %s", kind, status, body)
			}
		}
	})
}
