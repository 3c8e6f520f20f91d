package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// What cannot have slow calls is refused.
func TestSlowFlag(t *testing.T) {
	for args, want := range map[string]string{
		"-e wall --slow=a.B.c -p 1":                               "",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.html":          "",
		"-e wall --slow=a.B.c":                                    "--slow needs the JVMs",
		"-e offcpu --slow=a.B.c -p 1":                             "--slow needs -e wall",
		"-e wall --slow=a.B.c -p 1 -d 10s --window=2s -o s.pb.gz": "",
		"-e wall --slow=a.B.c --count=a.B.c -p 1":                 "--count",
		"-e wall --slow=a.B.c -p 1 -o s.folded": "s.folded cannot keep slow calls: use an output " +
			"that ends in .pb.gz or .html",
		"-e wall --slow=a.B.c -p 1 -o s.pb.gz -o s.txt": "s.txt cannot keep slow calls",
	} {
		checkSlowFlag(t, "record "+args, want, func() error {
			_, err := parseRecord(strings.Fields(args), io.Discard)
			return err
		})
	}
	for args, want := range map[string]string{
		"-e wall --slow=a.B.c -p 1":             "",
		"-e wall --slow=a.B.c -p 1 --budget=5%": "",
		"-e wall --slow=a.B.c":                  "--slow needs the JVMs",
		"-e cpu --slow=a.B.c -p 1":              "--slow needs -e wall",
		"-e wall,calls --slow=a.B.c -p 1":       "remove -e calls",
		"-e wall --slow=a -p 1":                 "want class.method",
	} {
		checkSlowFlag(t, "serve "+args, want, func() error {
			_, err := parseServe(strings.Fields(args), io.Discard)
			return err
		})
	}
}

func checkSlowFlag(t *testing.T, args, want string, parse func() error) {
	t.Helper()
	err := parse()
	if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !isMisuse(err)) {
		t.Errorf("%s: %v, want %q", args, err, want)
	}
}

// report reads what serve records now, of the kind that the view needs.
func TestReportURL(t *testing.T) {
	p := window()
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
		err := showReport(t.Context(), []string{"--view=" + test.view, test.address}, &stdout, &stderr)
		text := stdout.String()
		if err != nil {
			text += err.Error()
		}
		if len(asked) != 1 || asked[0] != test.asked || !strings.Contains(text, test.want) {
			t.Errorf("report --view=%s %s asks %q: %s", test.view, test.address, asked, text)
		}
	}
}
