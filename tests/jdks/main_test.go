package main

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// CPU time, allocations, locks and waits are right on two JDKs that the other tests do not run on,
// each in a root directory of its own. Waits for monitors may be missing where a build has no cheap
// place for a probe, if the profile says so, and causes of waits in the VM where its frames are not
// known.
func TestJDKs(t *testing.T) {
	needs.Root(t, "sampling")
	m := meter{dir: t.TempDir(), short: true}
	for _, c := range plan(needs.Fetched(t, shortVersions...), options{Options: harness.Options{Short: true}}) {
		t.Run(c.String(), func(t *testing.T) {
			var err error
			if m.agent.Path == "" {
				if m.agent, err = profiler.Build(t.Context(), m.dir); err != nil {
					t.Fatal(err)
				}
			}
			r := m.try(t.Context(), c)
			if r.err != nil || r.absent != "" {
				t.Fatal(r.err, r.absent)
			}
			for _, v := range r.verdicts {
				t.Logf("%s: %v", v.feature, v)
				if v.state == wrong || v.state == silent && v.feature != monitors && v.feature != causes {
					t.Errorf("%s: %v", v.feature, v)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-run", "("}, {"-nonsense"}, {"-update", "-short"},
		{"-update", "-run", "Serial"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestPlan(t *testing.T) {
	jdks := []jvm.JDK{{Version: 8, Release: "8u1"}, {Version: 11, Release: "11.0.1"}, {Version: 21, Release: "21"},
		{Version: 26, Release: "26"}}
	count := func(args ...string) int {
		o, err := parse(args)
		if err != nil {
			t.Fatal(err)
		}
		cells := slices.DeleteFunc(plan(jdks, o), func(c cell) bool { return !o.run.MatchString(c.String()) })
		return len(cells)
	}
	if n := count("-short"); n != len(jdks) {
		t.Errorf("the short form has %d cells of %d JDKs", n, len(jdks))
	}
	for pattern, want := range map[string]int{
		", ZGC$":              2, // not on 8, nor without generations on 26
		", generational ZGC$": 2,
		"compact headers":     1,
		"AppCDS":              3,
		"AOT":                 1,
		"^JDK 8u1, CMS":       1,
		"^JDK 21, CMS":        0,
	} {
		if got := count("-run", pattern); got != want {
			t.Errorf("-run %q has %d cells, want %d", pattern, got, want)
		}
	}
}
