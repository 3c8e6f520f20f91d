package hotspot

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The list has every method that was compiled or that compiled code was counted to call, and the
// VM's counts of them can be read.
func TestAllMethods(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startGuest(t, home, []string{callsSource}, "-XX:TieredStopAtLevel=3", "hotspot.CallsGuest", "30000")
			p := vm.attach(t)
			g := readCalls(t, p)
			began := time.Now()
			methods, err := p.Methods()
			if err != nil {
				t.Fatal(err)
			}
			listed := time.Since(began)
			known := make(map[uint64]bool, len(methods))
			for _, m := range methods {
				known[m] = true
			}
			for m, profile := range g.profiles {
				if profile.Counted && !known[m] && g.name[m] != "" && !intrinsic(g.name[m]) {
					t.Errorf("%s is not listed", g.name[m])
				}
			}
			began = time.Now()
			counts, took, err := p.Counts(methods)
			if err != nil {
				t.Fatal(err)
			}
			read, counted, sites := time.Since(began), 0, 0
			for _, c := range counts {
				if c.Unreadable {
					t.Errorf("the counts of %#x cannot be read", c.Method)
				}
				if c.Data != 0 {
					counted++
				}
				sites += len(c.Sites)
			}
			t.Logf("%d methods in %v, %d counted, with %d calls, in %v, of which the counters took %v", len(methods),
				listed, counted, sites, read, took)
			if counted < 50 || sites < 50 {
				t.Errorf("%d of %d methods are counted, with %d calls", counted, len(methods), sites)
			}
		})
	}
}

// intrinsic tells the methods that the VM makes for itself, which no class declares.
func intrinsic(function string) bool {
	method, ok := strings.CutPrefix(function, "java.lang.invoke.MethodHandle.")
	return ok && (strings.HasPrefix(method, "linkTo") || method == "invokeBasic")
}
