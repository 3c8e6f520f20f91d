package httpd

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// compiledWindow is the n-th window of ten seconds of a JVM in which these versions were sampled,
// ten times each.
func compiledWindow(n int, versions ...profile.Version) *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	for _, v := range versions {
		leaf := symbol.Frame{Function: v.Method, Kind: symbol.KindJIT,
			Mapping: unique.Make(symbol.Mapping{File: "[jit:HotSpot]", Version: v.ID})}
		tree.Add([]symbol.Symbol{symbol.Intern(leaf)}, 10)
	}
	return &profile.Profile{
		Start: time.Unix(1_700_000_000+10*int64(n), 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond,
		Processes: []*profile.Process{{PID: 7, Comm: "java", Threads: []*profile.Thread{{TID: 7, Tree: tree}},
			Versions: versions}},
	}
}

func version(id uint32, method string) profile.Version {
	return profile.Version{ID: id, Level: 4, EntryBCI: -1, Size: 100, Method: method, SystemName: method + "()V",
		State: profile.VersionInUse, Since: time.Second, Decompiles: -1}
}

// The page has the history of all windows: what replaced a version, and when and why it was given
// up.
func TestVersionsPage(t *testing.T) {
	s, hs := start(t, new(fake))
	if resp, body := get(t, hs.URL+"/versions"); resp.StatusCode != 200 ||
		!strings.Contains(body, "No code versions yet") {
		t.Errorf("at first: %d %s", resp.StatusCode, body)
	}
	old := version(812, "app.<b>Main")
	s.Observe(compiledWindow(0, old))
	old.State, old.InUse, old.Until = profile.VersionGivenUp, 2*time.Second, 2500*time.Millisecond
	old.Since, old.Traps = -9*time.Second, []profile.Trap{{Method: "app.Shape.area", Reason: "class_check", Count: 3}}
	s.Observe(compiledWindow(1, old, version(2011, "app.<b>Main")))
	_, body := get(t, hs.URL+"/versions?pid=7")
	for _, want := range []string{"app.&lt;b&gt;Main", "#812 C2", "#2011 C2", ">1.0<", "12.0–12.5",
		"deopt: class_check", "class_check in app.Shape.area (3)", ">30<", ">20<"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q:\n%s", want, body)
		}
	}
	if resp, _ := get(t, hs.URL+"/versions?pid=x"); resp.StatusCode != 400 {
		t.Errorf("pid=x: %d", resp.StatusCode)
	}
}

// What a process can have kept is bounded: its methods, and their versions.
func TestVersionsBounded(t *testing.T) {
	var c codeVersions
	for n := range 20 {
		var versions []profile.Version
		for i := range 100 {
			versions = append(versions, version(uint32(1000*n+i+1), fmt.Sprintf("app.Main.m%d", 100*n+i)),
				version(uint32(1000*n+500+i), "app.Main.same"))
		}
		w := compiledWindow(n, versions...)
		for pid := range 10 {
			w.Processes[0].PID = 10*n + pid
			c.observe(w)
		}
		w.Processes[0].PID = 5
		c.observe(w)
	}
	if len(c.processes) > maxVersionProcesses {
		t.Errorf("%d processes", len(c.processes))
	}
	for _, p := range c.processes {
		if len(p.methods) > maxVersionMethods {
			t.Errorf("%d methods", len(p.methods))
		}
		for name, m := range p.methods {
			if len(m.Versions) > maxMethodVersions || len(m.byID) != len(m.Versions) {
				t.Errorf("%s has %d versions, %d by id", name, len(m.Versions), len(m.byID))
			}
		}
	}
}
