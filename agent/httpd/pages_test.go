package httpd

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

var views = []string{"/ui/flamegraph", "/ui/top", "/ui/peek", "/ui/peek?f=java", "/ui/flamegraph?f=Cart&si=samples", "/ui/download"}

func TestPagesBeforeTheFirstSample(t *testing.T) {
	s, hs := start(t, new(fake))
	for range 2 {
		for _, path := range views {
			resp, body := get(t, hs.URL+path)
			if resp.StatusCode != 200 || !strings.Contains(body, "Nothing to show yet") || !strings.Contains(body, `http-equiv="refresh"`) {
				t.Errorf("%s: %d\n%s", path, resp.StatusCode, body)
			}
		}
		// The same for windows without a sample.
		s.Observe(&agent.Profile{Duration: shop(0).Duration, Period: shop(0).Period})
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
	for _, path := range append(views, "/") {
		resp, body := get(t, hs.URL+path)
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
		if strings.Contains(body, "<script>alert(") || resp.Header.Get("X-Evil") != "" {
			t.Errorf("%s: a name became code:\n%s", path, body)
		}
	}
	if _, body := get(t, hs.URL+"/ui/top?f=%3C/script%3E%3Cscript%3Ealert(3)%3C/script%3E"); strings.Contains(body, "<script>alert(") {
		t.Errorf("a parameter became code:\n%s", body)
	}
}

// What is not served is not in the menus either; if this fails, pprof has renamed an entry that hide names.
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
	for _, path := range []string{"/ui/saveconfig?config=x", "/ui/deleteconfig?config=x", "/ui/source?f=.", "/ui/disasm?f=.", "/ui/graph", "/ui/weblist", "/ui/x/../source"} {
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

// Many readers while windows close; the race detector watches.
func TestPagesAtOnce(t *testing.T) {
	s, hs := start(t, new(fake))
	s.Observe(shop(0))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 4 {
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
