package httpd

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/browser"
)

// waitingShop is the shop with the wall time, or the off-CPU time, of its threads in 10 s.
func waitingShop(n uint64, kind profile.EventKind) *profile.Profile {
	p := shop(n)
	e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbol.Symbol])}
	stack := []symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.shop.Server.handle", SystemName: "handle",
		Kind: symbol.KindJIT})}
	for what, seconds := range map[string]float64{
		cause.Running: 8, cause.Runnable: 3, cause.Throttled: 1, cause.Socket: 20, cause.Monitor: 5, cause.Idle: 400,
	} {
		if kind == profile.OffCPU && what == cause.Running {
			continue
		}
		row := profile.EventRow{Context: e.Tree.Add(stack, 5), TID: 1010, Thread: "http",
			EventLabels: profile.EventLabels{Place: what, What: what}, Events: 5}
		row.Values[kind.Main()] = seconds * 1e9
		e.Rows = append(e.Rows, row)
	}
	p.Processes[0].Events = append(p.Processes[0].Events, e)
	return p
}

// Services have what their threads do, whatever kind is shown, if that is recorded. Idle threads do
// nothing.
func TestStates(t *testing.T) {
	state := func(name string, threads float64) api.State { return api.State{Name: name, Threads: threads} }
	for _, tt := range []struct {
		name     string
		recorded []profile.EventKind
		want     []api.State
	}{
		{"wall time", []profile.EventKind{profile.Wall}, []api.State{state("running", 0.8), state("runnable", 0.3),
			state("throttled", 0.1), state("waiting", 2.5)}},
		{"off-CPU time", []profile.EventKind{profile.OffCPU}, []api.State{state("runnable", 0.3),
			state("throttled", 0.1), state("waiting", 2.5)}},
		{"neither", []profile.EventKind{profile.Locks}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := recording(tt.recorded...)
			f.noTime = false
			s, hs := start(t, f)
			for n := range uint64(3) {
				s.Observe(waitingShop(n, tt.recorded[0]))
			}
			for _, kind := range []string{"cpu", tt.recorded[0].String()} {
				var answer api.Services
				askJSON(t, hs.URL+"/api/v1/services?kind="+kind, &answer)
				if len(answer.Services) == 0 || !reflect.DeepEqual(answer.States, tt.want) ||
					!reflect.DeepEqual(answer.Services[0].States, tt.want) {
					t.Errorf("%s: %+v", kind, answer)
				}
				for _, other := range answer.Services[min(1, len(answer.Services)):] {
					if len(other.States) > 0 {
						t.Errorf("%s: %s has %v", kind, other.Service, other.States)
					}
				}
			}
		})
	}
}

// In a browser the states are parts of a bar, and words.
func TestStatesPage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	f := recording(profile.Wall)
	f.noTime = false
	s, hs := start(t, f)
	get(t, hs.URL+"/api/v1/flame")
	for n := range uint64(3) {
		s.Observe(waitingShop(n, profile.Wall))
	}
	b := browser.Start(t)
	for name, v := range map[string]browser.View{"wide": {}, "narrow-dark": {Width: 360, Height: 740, Dark: true}} {
		tab := b.Open(t, hs.URL+"/", v)
		tab.Wait(t, `document.body.dataset.ready && document.querySelectorAll(".states").length > 0`)
		var text string
		var parts, bars int
		tab.Eval(t, `document.querySelector(".states").textContent`, &text)
		tab.Eval(t, `document.querySelector(".states").querySelectorAll("span").length`, &parts)
		tab.Eval(t, `document.querySelectorAll(".states").length`, &bars)
		if text != "threads: running 0.80, runnable 0.30, throttled 0.10, waiting 2.50" || parts != 4 || bars != 2 {
			t.Errorf("%s: %d bars, the first has %d parts: %q", name, bars, parts, text)
		}
		if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
			tab.Screenshot(t, filepath.Join(dir, "states-"+name+".png"))
		}
		for _, finding := range append(tab.Accessibility(t), tab.Problems()...) {
			t.Errorf("%s: %s", name, finding)
		}
	}
}
