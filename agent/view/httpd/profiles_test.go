package httpd

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestPull(t *testing.T) {
	f := new(fake)
	_, hs := start(t, f)
	resp, body := get(t, hs.URL+"/profiles/cpu?seconds=7&pid=12&pid=34")
	if got := resp.Header.Get("Content-Disposition"); got != `attachment; filename="cpu.pb.gz"` {
		t.Errorf("Content-Disposition: %q", got)
	}
	p, err := pprof.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) == 0 || p.SampleType[len(p.SampleType)-1].Type != "cpu" {
		t.Errorf("%d samples of %v", len(p.Sample), p.SampleType)
	}
	if got := f.called(); len(got) != 1 || got[0].d != 7*time.Second || !slices.Equal(got[0].pids, []int{12, 34}) {
		t.Errorf("collected %v, want 7s of 12 and 34", got)
	}
}

func TestPullParameters(t *testing.T) {
	pids := strings.Repeat("&pid=1", maxPIDs)
	for _, tt := range []struct {
		query, says string
		status      int
	}{
		{"", "", 200},
		{"seconds=1", "", 200},
		{"seconds=300", "", 200},
		{"seconds=5&unknown=x", "", 200},
		{"seconds=5" + pids, "", 200},
		{"pid=4194304", "", 200},
		{"seconds=", "seconds", 400},
		{"seconds=0", "from 1 to 300", 400},
		{"seconds=-1", "from 1 to 300", 400},
		{"seconds=301", "from 1 to 300", 400},
		{"seconds=1.5", "from 1 to 300", 400},
		{"seconds=99999999999999999999", "from 1 to 300", 400},
		{"seconds=%0d%0aX-Evil:1", `"\r\nX-Evil`, 400},
		{"pid=0", "bad pid", 400},
		{"pid=-1", "bad pid", 400},
		{"pid=4194305", "bad pid", 400},
		{"pid=self", "bad pid", 400},
		{"pid=1&pid=", "bad pid", 400},
		{"pid=1" + pids, "65 times pid=", 400},
		{"pid=4242", "pid 4242: no such process", 404},
	} {
		_, hs := start(t, new(fake))
		resp, body := get(t, hs.URL+"/profiles/cpu?"+tt.query)
		if resp.StatusCode != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("?%.60s: %d %.100q, want %d and %q", tt.query, resp.StatusCode, body, tt.status, tt.says)
		}
		// Without this header go tool pprof keeps the reason to itself.
		if tt.status != 200 && resp.Header.Get("X-Go-Pprof") != "1" {
			t.Errorf("?%.60s: the error is not marked for go tool pprof", tt.query)
		}
	}
}

func FuzzParsePull(f *testing.F) {
	f.Add("seconds=5&pid=1&pid=2")
	f.Add("seconds=1e3&pid=%ff;;=")
	f.Fuzz(func(t *testing.T, query string) {
		req, err := http.NewRequest("GET", "http://127.0.0.1/?x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.RawQuery = query
		d, pids, err := parsePull(req.URL.Query())
		if err != nil {
			return
		}
		if d < minSeconds*time.Second || d > maxSeconds*time.Second || len(pids) > maxPIDs {
			t.Errorf("%q is %v of %d processes", query, d, len(pids))
		}
		for _, pid := range pids {
			if pid < 1 || pid > api.MaxPID {
				t.Errorf("%q names process %d", query, pid)
			}
		}
	})
}

// deadlined notes the write deadlines that a handler asks for.
type deadlined struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error {
	d.deadlines = append(d.deadlines, t)
	return nil
}

// The server's write timeout is shorter than a profile may be long. Sending it has a time of its
// own.
func TestPullMovesTheDeadline(t *testing.T) {
	for _, seconds := range []time.Duration{1, 300} {
		rec := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		newServer(t, new(fake)).handler.ServeHTTP(rec, httptest.NewRequest("GET",
			fmt.Sprintf("/profiles/cpu?seconds=%d", seconds), nil))
		if rec.Code != 200 || len(rec.deadlines) != 2 || rec.deadlines[0].Before(before.Add(seconds*time.Second+
			listener.WriteTimeout)) || rec.deadlines[1].Before(before.Add(listener.SendTimeout)) {
			t.Errorf("%d s: %d, may write until %v, now %v", seconds, rec.Code, rec.deadlines, before)
		}
	}
}

// The fifth pull at once is sent away and told when to come back; the others end when they should.
func TestTooManyPulls(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	_, hs := start(t, f)
	done := make(chan int)
	for range maxPulls {
		go func() {
			resp, err := http.Get(hs.URL + "/profiles/cpu?seconds=60")
			if err != nil {
				t.Error(err)
				done <- 0
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
	}
	wait.For(t, wait.Long, "as many pulls as there may be", func() bool { return len(f.called()) == maxPulls })
	resp, body := get(t, hs.URL+"/profiles/cpu?seconds=1")
	var after int
	if _, err := fmt.Sscan(resp.Header.Get("Retry-After"), &after); err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After: %q, want up to 60 seconds", resp.Header.Get("Retry-After"))
	}
	if resp.StatusCode != 429 {
		t.Errorf("%d %q, want 429", resp.StatusCode, body)
	}
	close(f.hold)
	for range maxPulls {
		if status := <-done; status != 200 {
			t.Errorf("a pull ended with %d", status)
		}
	}
	if resp, _ := get(t, hs.URL+"/profiles/cpu?seconds=1"); resp.StatusCode != 200 {
		t.Errorf("afterwards: %s, want 200", resp.Status)
	}
}

// A client that goes away ends what it asked for, and its slot is free again.
func TestClientGoesAway(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	_, hs := start(t, f)
	for range maxPulls + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", hs.URL+"/profiles/cpu?seconds=300", nil)
		if err != nil {
			t.Fatal(err)
		}
		before := len(f.called())
		done := make(chan error)
		go func() {
			_, err := http.DefaultClient.Do(req)
			done <- err
		}()
		wait.For(t, wait.Long, "the pull", func() bool { return len(f.called()) == before+1 })
		cancel()
		if err := <-done; err == nil {
			t.Fatal("the request was answered")
		}
		wait.For(t, wait.Long, "the end of the pull", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.ended) == before+1 && f.ended[before] != nil
		})
	}
}

// A scrape of all kinds at once gets all of them, also next to other clients.
func TestSlotsOfAllKinds(t *testing.T) {
	s := newSlots()
	now := time.Unix(1000, 0)
	for range maxPulls {
		if _, _, ok := s.take("cpu", now, time.Minute); !ok {
			t.Fatal("a slot was refused")
		}
	}
	for _, k := range kinds {
		if _, _, ok := s.take(k.Name, now, 10*time.Second); ok != (k.Name != "cpu") {
			t.Errorf("%s: %v", k.Name, ok)
		}
	}
	for _, k := range kinds {
		if _, wait, ok := s.take(k.Name, now, 10*time.Second); ok || wait != 10 {
			t.Errorf("%s a second time: %d s, %v", k.Name, wait, ok)
		}
	}
}

func TestSlots(t *testing.T) {
	s := newSlots()
	now := time.Unix(1000, 0)
	var releases []func()
	for i := range maxPulls {
		release, _, ok := s.take("cpu", now, time.Duration(10+i)*time.Second)
		if !ok {
			t.Fatalf("slot %d of %d was refused", i, maxPulls)
		}
		releases = append(releases, release)
	}
	for _, tt := range []struct {
		later time.Duration
		wait  int
	}{{0, 10}, {3500 * time.Millisecond, 7}, {time.Minute, 1}} {
		if _, wait, ok := s.take("cpu", now.Add(tt.later), time.Second); ok || wait != tt.wait {
			t.Errorf("after %v: %d s and %v, want %d s", tt.later, wait, ok, tt.wait)
		}
	}
	releases[2]()
	releases[2]() // harmless
	if _, _, ok := s.take("cpu", now, time.Second); !ok {
		t.Error("no slot although one was given back")
	}
	if _, _, ok := s.take("cpu", now, time.Second); ok {
		t.Error("one slot given back was taken twice")
	}
}

// The command that people use must be able to pull, and must show why it cannot.
func TestGoToolPprof(t *testing.T) {
	f := new(fake)
	_, hs := start(t, f)
	toolPprof := func(args ...string) string {
		cmd := exec.Command("go", append([]string{"tool", "pprof"}, args...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, _ := cmd.CombinedOutput() // it exits with an error for a reason that the output tells
		return string(out)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Fatal("the go command, which runs this test, is not in PATH")
	}
	out := toolPprof("-top", "-seconds", "1", hs.URL+"/profiles/cpu?pid=1000")
	for _, want := range []string{"File: java", "Type: cpu", "java.util.HashMap.getNode", "(inline)"} {
		if !strings.Contains(out, want) {
			t.Errorf("go tool pprof does not show %q:\n%s", want, out)
		}
	}
	if got := f.called(); len(got) != 1 || got[0].d != time.Second || !slices.Equal(got[0].pids, []int{1000}) {
		t.Errorf("go tool pprof asked for %v, want 1s of 1000", got)
	}
	if out := toolPprof("-top", hs.URL+"/profiles/cpu?seconds=1000"); !strings.Contains(out, "from 1 to 300") {
		t.Errorf("go tool pprof does not say what is wrong with seconds=1000:\n%s", out)
	}
}

// What is sent is exactly one gzipped profile.
func TestPullIsAFile(t *testing.T) {
	_, hs := start(t, new(fake))
	_, body := get(t, hs.URL+"/profiles/cpu?seconds=1")
	p, err := pprof.ParseData([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := p.Write(&again); err != nil {
		t.Fatal(err)
	}
	if again.String() != body {
		t.Error("the body is not what pprof writes")
	}
}
