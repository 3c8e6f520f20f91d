package httpd

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var views = []string{"/ui/flamegraph", "/ui/top", "/ui/peek", "/ui/peek?f=java", "/ui/flamegraph?f=Cart&si=samples",
	"/ui/download"}

func TestPagesBeforeTheFirstSample(t *testing.T) {
	s, hs := start(t, new(fake))
	for range 2 {
		for _, path := range views {
			resp, body := get(t, hs.URL+path)
			if resp.StatusCode != 200 || !strings.Contains(body, "Nothing to show yet") ||
				!strings.Contains(body, `http-equiv="refresh"`) {
				t.Errorf("%s: %d\n%s", path, resp.StatusCode, body)
			}
		}
		// The same for windows without a sample.
		s.Observe(&profile.Profile{Duration: shop(0).Duration, Period: shop(0).Period})
	}
}

// A reload shows what was closed since.
func TestPagesRefresh(t *testing.T) {
	s, hs := start(t, new(fake))
	get(t, hs.URL+"/ui/top")
	s.Observe(shop(0))
	if _, body := get(t, hs.URL+"/ui/top"); !strings.Contains(body, "postgres [2000]") {
		t.Error("the first window does not show up")
	}
	later := shop(1)
	later.Processes = later.Processes[1:2]
	later.Processes[0].PID = 2001
	s.Observe(later)
	_, body := get(t, hs.URL+"/ui/top")
	for _, want := range []string{"postgres [2000]", "postgres [2001]", "java [1000]"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q does not show up after the second window", want)
		}
	}
}

// Names from targets stay text. Inside scripts html/template writes < as \u003c.
func TestPagesHostileNames(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(shop(0))
	for _, path := range append(views, "/", "/plain") {
		resp, body := get(t, hs.URL+path)
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
		if strings.Contains(body, "<script>alert(") || resp.Header.Get("X-Evil") != "" {
			t.Errorf("%s: a name became code:\n%s", path, body)
		}
	}
	if _, body := get(t, hs.URL+"/ui/top?f=%3C/script%3E%3Cscript%3Ealert(3)%3C/script%3E"); strings.Contains(body,
		"<script>alert(") {
		t.Errorf("a parameter became code:\n%s", body)
	}
}

// What is not served is not in the menus either; if this fails, pprof has renamed an entry that
// hide names.
func TestPagesMenus(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(shop(0))
	_, body := get(t, hs.URL+"/ui/flamegraph")
	if !strings.Contains(body, hide) {
		t.Error("the menus are not trimmed")
	}
	for _, id := range regexp.MustCompile(`#([a-z-]+)`).FindAllStringSubmatch(hide, -1) {
		if !strings.Contains(body, `id="`+id[1]+`"`) {
			t.Errorf("no element %q", id[1])
		}
	}
}

// No request makes pprof read files of hostile names, run programs or write anything.
func TestPagesTouchNoFiles(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PPROF_TMPDIR", filepath.Join(home, "pprof"))
	s, hs := start(t, new(fake))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("PATH", home) // no dot, no objdump
	secret := filepath.Join(home, "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := shop(0)
	p.Processes[0].Executable.File = secret
	s.Observe(p)
	for _, path := range views {
		if resp, _ := get(t, hs.URL+path); resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	for _, path := range []string{"/ui/saveconfig?config=x", "/ui/deleteconfig?config=x", "/ui/source?f=.",
		"/ui/disasm?f=.", "/ui/graph", "/ui/weblist", "/ui/x/../source"} {
		resp, body := get(t, hs.URL+path)
		if resp.StatusCode == 200 || strings.Contains(body, "s3cret") {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
	}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if path != home && path != secret {
			t.Errorf("%s was written", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Without a home directory, as under systemd, pprof would not start.
func TestPagesWithoutHome(t *testing.T) {
	s, hs := start(t, new(fake))
	t.Setenv("HOME", "")
	s.Observe(shop(0))
	if resp, body := get(t, hs.URL+"/ui/top"); resp.StatusCode != 200 {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// However much there is, a page is small, and shows the process that has most.
func TestPagesAreSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and others make the same pages")
	}
	s, hs := start(t, new(fake))
	s.Observe(sinktest.Crowd(10, 300))
	for _, path := range views {
		resp, body := get(t, hs.URL+path)
		if resp.StatusCode != 200 || len(body) > maxPageBytes {
			t.Errorf("%s: %s, %d bytes, want no more than %d", path, resp.Status, len(body), maxPageBytes)
		}
		if path == "/ui/flamegraph" &&
			(!strings.Contains(body, "java [7]") || !strings.Contains(body, profile.RareStacks)) {
			t.Errorf("%s has no process 7, or does not say that something is left out", path)
		}
	}
}

// What is kept of a window for pages has a bound.
func TestWindowsAreSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	w := sinktest.Crowd(digest.MaxProcesses+10, 4)
	reduced := reduce([]*profile.Profile{w}, kinds[0], maxWindowNodes)
	nodes, sum := 0, uint64(0)
	for _, proc := range reduced.Processes {
		for _, thread := range proc.Threads {
			nodes += thread.Tree.Len()
			sum += thread.Tree.Total()
		}
	}
	var want uint64
	for _, proc := range w.Processes {
		want += proc.Threads[0].Tree.Total()
	}
	// Each node that is left may have one child for what is not.
	if len(reduced.Processes) != digest.MaxProcesses+1 || nodes > 2*maxWindowNodes+digest.MaxProcesses || sum != want {
		t.Errorf("%d processes, %d nodes, weight %d; want %d, at most %d, and %d", len(reduced.Processes), nodes, sum,
			digest.MaxProcesses+1, 2*maxWindowNodes+digest.MaxProcesses, want)
	}
}

// More requests than may wait for pages are refused, and told when to come back.
func TestPagesBusy(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(shop(0))
	get(t, hs.URL+"/ui/top") // is made, and needs no place later
	s.pages.busy <- struct{}{}
	var wg sync.WaitGroup
	for i := range maxRenders {
		wg.Go(func() {
			resp, err := http.Get(fmt.Sprintf("%s/ui/peek?f=%d", hs.URL, i))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("a request that waited: %s", resp.Status)
			}
		})
	}
	wait.For(t, wait.Long, "requests that wait", func() bool { return len(s.pages.waiting) == maxRenders })
	if resp, _ := get(t, hs.URL+"/ui/flamegraph"); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s, want 429 and when to try again", resp.Status)
	}
	if resp, _ := get(t, hs.URL+"/ui/top"); resp.StatusCode != 200 {
		t.Errorf("a page that is there: %s", resp.Status)
	}
	<-s.pages.busy
	wg.Wait()
}

// Readers of one page share it; those who read slowly cannot make the agent hold more than so many.
func TestPagesOfSlowReaders(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(sinktest.Crowd(4, 200))
	read := func(path string) (status string) {
		conn, err := net.Dial("tcp", hs.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		line := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, line); err != nil {
			t.Fatal(err)
		}
		return string(line[len("HTTP/1.1 "):])
	}
	for range 50 {
		if status := read("/ui/flamegraph"); status != "200" {
			t.Fatalf("status %s", status)
		}
	}
	if n := s.pages.cache.alive; n != 1 {
		t.Errorf("%d pages are held for readers of one", n)
	}
	refused := 0
	for i := range maxPages + 5 {
		if read(fmt.Sprintf("/ui/flamegraph?f=.&i=Nothing%d", i)) == "429" {
			refused++
		}
	}
	s.pages.cache.mu.Lock()
	defer s.pages.cache.mu.Unlock()
	if n := s.pages.cache.alive; n > maxPages {
		t.Errorf("%d pages are held, want at most %d", n, maxPages)
	}
	t.Logf("%d of %d were refused", refused, maxPages+5)
}

// As many readers as may wait for pages at once, while windows close; the race detector watches.
func TestPagesAtOnce(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(shop(0))
	var wg sync.WaitGroup
	for i := range maxRenders {
		wg.Go(func() {
			for j := range 8 {
				resp, err := http.Get(hs.URL + views[(i+j)%len(views)])
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("%s: %s", views[(i+j)%len(views)], resp.Status)
				}
			}
		})
	}
	for i := range uint64(20) {
		s.Observe(shop(i + 1))
	}
	wg.Wait()
}
