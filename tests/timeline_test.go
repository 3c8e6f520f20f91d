package tests

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/browser"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// The lane of a thread shows what the thread says itself, at each time.
func TestRecordTimeline(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) {
		for _, kind := range []string{"wall", "offcpu"} {
			t.Run(kind, func(t *testing.T) { recordTimeline(t, jdk, kind) })
		}
	})
}

func recordTimeline(t *testing.T, jdk jvm.JDK, kind string) {
	guest := startEvents(t, jdk, events.Stages)
	if _, err := guest.Run(1, 1); err != nil {
		t.Fatal(err)
	}
	const rounds = 4
	p, truth := recordEvents(t, guest, kind, 1, rounds, "--budget=50%")
	booted := time.Now().Add(-proc.Monotonic()) // when CLOCK_MONOTONIC began
	m, err := stored.MetadataOf(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Lanes) != 1 || len(truth.Stages) != 3*rounds {
		t.Fatalf("lanes of %d processes, %d stages", len(m.Lanes), len(truth.Stages))
	}
	lanes := &m.Lanes[0]
	steps := laneOf(t, lanes, "worker-0")
	// A stage shares its first and its last step with others: no cause counts for more than what
	// the step has of the stage.
	var all, right, delayed float64
	for _, stage := range truth.Stages {
		own, runnable := 0.0, 0.0
		from, until := booted.Add(stage.From).Sub(lanes.Start), booted.Add(stage.Until).Sub(lanes.Start)
		for i, shares := range steps {
			begin := time.Duration(i) * lanes.Step
			overlap := float64(min(until, begin+lanes.Step) - max(from, begin))
			if overlap <= 0 {
				continue
			}
			has := func(cause string) float64 { return min(shares[cause]*float64(lanes.Step), overlap) }
			own = own + min(has(stage.Cause)+has(events.Also[stage.Cause]), overlap)
			runnable += min(has("runnable")+has("throttled"),
				max(overlap-has(stage.Cause)-has(events.Also[stage.Cause]), 0))
		}
		length := float64(stage.Until - stage.From)
		t.Logf("%s for %v: %.1f %%, of that %.1f %% waiting for a CPU", stage.Cause, stage.Until-stage.From,
			100*(own+runnable)/length, 100*runnable/length)
		all, right, delayed = all+length, right+own, delayed+runnable
		if stage.Cause != "running" && own < (length-runnable)/2 { // other threads have no part in how long it waits
			t.Errorf("%s is in %.1f %% of its stage", stage.Cause, 100*own/length)
		}
	}
	if right+delayed < 0.95*all {
		t.Errorf("%.1f %% of the time has the right cause, at steps of %v", 100*(right+delayed)/all, lanes.Step)
	}
	if right == 0 {
		t.Error("the thread only waited for a CPU")
	}
}

// laneOf returns the shares of causes by step, of the thread of that name with the longest lane.
func laneOf(t *testing.T, l *stored.Lanes, thread string) (steps []map[string]float64) {
	t.Helper()
	for i := range l.Threads {
		lane := &l.Threads[i]
		if lane.Thread != thread {
			continue
		}
		runs, err := lane.Steps(len(l.Causes), l.Steps)
		if err != nil {
			t.Fatal(err)
		}
		of := make([]map[string]float64, lane.From)
		for _, run := range runs {
			shares := map[string]float64{}
			for _, part := range run.Parts {
				shares[l.CauseName(part.Cause)] = float64(part.Percent) / 100
			}
			for range run.Steps {
				of = append(of, shares)
			}
		}
		if len(of) > len(steps) {
			steps = of
		}
	}
	if steps == nil {
		t.Fatalf("%s has no lane among %d", thread, len(l.Threads))
	}
	return steps
}

// The page draws the lanes. A click on a thread shows the stacks of its group only, and a drag
// zooms; both can be undone.
func TestLanesPage(t *testing.T) {
	b := browser.Start(t)
	path := lanesPage(t)
	for name, view := range map[string]browser.View{
		"lanes": {Width: 1600}, "lanes-dark": {Width: 1600, Dark: true}, "lanes-small": {Width: 1280, Height: 800},
		"lanes-small-dark": {Width: 1280, Height: 800, Dark: true},
		"lanes-narrow":     {Width: 360, Height: 740},
	} {
		t.Run(name, func(t *testing.T) {
			tab := b.Open(t, "file://"+path, view)
			tab.Wait(t, `document.body.dataset.ready && document.querySelector(".lanes canvas")`)
			tab.Sees(t, "Threads over time")
			tab.Sees(t, "(1 hidden)")
			if dir := os.Getenv("VMPROF_PICTURES"); dir != "" {
				tab.Screenshot(t, filepath.Join(dir, name+".png"))
			}
			for _, finding := range tab.Accessibility(t) {
				t.Error(finding)
			}
			tab.Eval(t, `document.querySelector(".lanebox button").click()`, nil)
			tab.Wait(t, `document.querySelectorAll(".lanebox button").length === 3 && location.hash.includes("thread=clerk-*")`)
			tab.Sees(t, "Show all threads")
			tab.Eval(t, `[...document.querySelectorAll(".lanes button")].find((b) => b.textContent === "Show all threads").click()`, nil)
			tab.Wait(t, `document.querySelectorAll(".lanebox button").length === 4`)
			tab.Eval(t, `document.getElementById("idle").click()`, nil)
			tab.Wait(t, `document.querySelectorAll(".lanebox button").length === 5`)
			tab.Drag(t, ".lanebox canvas", 0.25, 0.75, 0)
			tab.Wait(t, `location.hash.includes("zoom=")`)
			tab.Sees(t, "Show all of the time")
			tab.Eval(t, `document.querySelector(".lanebox canvas").focus()`, nil)
			tab.Keys(t, kb.ArrowDown+kb.ArrowRight)
			tab.Wait(t, `/^clerk-1, 2\.5.* s .*: monitor/.test(document.querySelector(".lanes [role=status]").textContent)`)
			for _, problem := range tab.Problems() {
				t.Error(problem)
			}
		})
	}
}

// lanesPage writes a page with five threads of 5 s: three clerks that wait for an accountant, and
// one that is idle.
func lanesPage(t *testing.T) (path string) {
	t.Helper()
	const running, sleep, monitor, idle = 0, 1, 2, 3
	run := func(steps int, parts ...profile.LanePart) profile.LaneRun {
		return profile.LaneRun{Steps: steps, Parts: parts}
	}
	whole := func(steps, cause int) profile.LaneRun {
		return run(steps, profile.LanePart{Cause: cause, Percent: 100})
	}
	clerk := []profile.LaneRun{whole(100, sleep), run(100, profile.LanePart{Cause: sleep, Percent: 70},
		profile.LanePart{Cause: running, Percent: 30}), whole(200, monitor), whole(100, running)}
	lanes := &profile.Lanes{Step: 10 * time.Millisecond, Steps: 500,
		Causes: []string{"running", "sleep", "monitor", "idle"}, Threads: []profile.Lane{
			{TID: 11, Thread: "clerk-1", Runs: clerk}, {TID: 12, Thread: "clerk-2", Runs: clerk},
			{TID: 13, Thread: "clerk-3", From: 50, Runs: clerk[:3]},
			{TID: 14, Thread: "accountant", Runs: []profile.LaneRun{whole(200, sleep), whole(200, running),
				whole(100, sleep)}},
			{TID: 15, Thread: "reaper", Runs: []profile.LaneRun{whole(500, idle)}},
		}}
	tree := new(cct.Tree[symbol.Symbol])
	frame := func(name string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, Kind: symbol.KindJIT})
	}
	var rows []profile.EventRow
	for _, lane := range lanes.Threads {
		row := profile.EventRow{Context: tree.Add([]symbol.Symbol{frame("Depot.book"), frame("Depot.main"),
			frame(lane.Thread)}, 1), TID: lane.TID, Thread: lane.Thread, Events: 1}
		row.Place, row.What, row.Values[profile.Wall.Main()] = "blocked", "monitor", 1e9
		rows = append(rows, row)
	}
	p := &profile.Profile{Start: time.Now(), Duration: 5 * time.Second,
		Processes: []*profile.Process{{PID: 7, Comm: "java", Runtime: "hotspot",
			Events: []*profile.Events{{Kind: profile.Wall, Tree: tree, Rows: rows, Lanes: lanes}}}}}
	file, err := sink.Pprof(p, sink.OfEvents(profile.Wall))
	if err != nil {
		t.Fatal(err)
	}
	page := sink.Page{Title: "wall.pb.gz"}
	page.Add("wall.pb.gz", file)
	path = filepath.Join(t.TempDir(), "wall.html")
	if err := page.WriteFile(path, nil); err != nil {
		t.Fatal(err)
	}
	return path
}
