package httpd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/browser"
)

// The flame graph is drawn as soon as it is there: before it the page asks for the kinds and for
// nothing else, and says that it loads. Services and the timeline come later.
func TestFlameGraphFirst(t *testing.T) {
	s, hs := start(t, &fake{stats: profile.Stats{Calls: new(profile.CallStats),
		Events: &profile.EventStats{Kinds: []profile.EventKind{profile.Allocations, profile.Locks}}}})
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(30) {
		w := shop(n)
		for i := range 100 {
			p := *w.Processes[0]
			p.PID, p.Service = 10_000+i, fmt.Sprintf("service-%d.service", i)
			w.Processes = append(w.Processes, &p)
		}
		s.Observe(w)
	}
	// Everything passes through a proxy that notes what is asked for, and holds back answers until
	// they are let.
	var mu sync.Mutex
	var asked []string
	flame, rest := make(chan struct{}), make(chan struct{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if what, ok := strings.CutPrefix(r.URL.Path, "/api/v1/"); ok {
			mu.Lock()
			asked = append(asked, what)
			mu.Unlock()
			switch what {
			case "kinds":
			case "flame":
				<-flame
			default:
				<-rest
			}
		}
		hs.Config.Handler.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	var once sync.Once
	release := func() { once.Do(func() { close(rest) }) }
	defer release()
	picture := func(tab *browser.Tab, name string) {
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Picture(t, filepath.Join(dir, "first-"+name+".png"))
		}
	}
	tab := browser.Start(t).Open(t, proxy.URL+"/", browser.View{})
	tab.Sees(t, "Loading…")
	picture(tab, "loading")
	mu.Lock()
	for _, what := range asked {
		if what != "kinds" && what != "flame" {
			t.Errorf("the page asks for %s before the flame graph is there", what)
		}
	}
	mu.Unlock()
	close(flame)
	tab.Wait(t, `document.body.dataset.drawn && !document.body.dataset.ready && document.querySelectorAll("g.frame").length > 10`)
	picture(tab, "drawn")
	var loading bool
	if tab.Eval(t, `!document.querySelector("p.message").hidden`, &loading); loading {
		t.Error("the page still says that it loads")
	}
	release()
	tab.Wait(t, `document.body.dataset.ready && document.querySelectorAll(".services .cards > li").length > 30`)
	picture(tab, "ready")
	var took, size float64
	const answer = `performance.getEntriesByType("resource").find((e) => e.name.includes("api/v1/flame"))`
	tab.Eval(t, `Number(document.body.dataset.drawn) - `+answer+`.responseEnd`, &took)
	tab.Eval(t, answer+`.encodedBodySize`, &size)
	t.Logf("%.0f ms from the answer to the flame graph, whose answer has %.0f kB", took, size/1000)
	if size > 1<<20 {
		t.Errorf("the flame graph's answer has %.0f bytes", size)
	}
}
