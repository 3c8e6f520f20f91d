package recordings

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// report reads what serve records now, of the kind that the view needs.
func TestReportURL(t *testing.T) {
	p := &profile.Profile{Duration: time.Second, Processes: []*profile.Process{{PID: 1, Comm: "java"}}}
	p.Followed = "com.acme.Api.handle"
	p.Processes[0].Slow = []profile.SlowCall{{TID: 7, Thread: "http-1", Start: p.Start, Length: time.Second,
		Parts: []profile.SlowPart{{State: "blocked", Cause: "socket", Time: 1e9}}}}
	stored, err := sink.Pprof(p, sink.OfEvents(profile.Wall)|sink.CallCounts|sink.Slow)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked = append(asked, r.URL.String()); r.URL.Path != "/profiles/wall" {
			http.Error(w, "wall time is not recorded: start the agent with serve -e wall", http.StatusNotFound)
			return
		}
		_ = stored.Write(w)
	}))
	defer hs.Close()
	for _, test := range []struct{ view, address, asked, want string }{
		{"slow", hs.URL, "/profiles/wall?seconds=10", "the 1 slowest calls of com.acme.Api.handle"},
		{"slow", hs.URL + "/profiles/wall?seconds=3&pid=7", "/profiles/wall?pid=7&seconds=3", "http-1: socket"},
		{"allocs", hs.URL + "/", "/profiles/alloc?seconds=10", "serve -e wall"},
		{"tree", hs.URL, "/profiles/cpu?seconds=10", "404"},
	} {
		var stdout, stderr strings.Builder
		asked = nil
		err := Report(t.Context(), []string{"--view=" + test.view, test.address}, &stdout, &stderr)
		text := stdout.String()
		if err != nil {
			text += err.Error()
		}
		if len(asked) != 1 || asked[0] != test.asked || !strings.Contains(text, test.want) {
			t.Errorf("report --view=%s %s asks %q: %s", test.view, test.address, asked, text)
		}
	}
}
