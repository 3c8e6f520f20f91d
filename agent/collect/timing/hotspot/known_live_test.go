//go:build linux && amd64

package hotspot

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A JVM's methods are found whether they are compiled or not.
func TestLiveFind(t *testing.T) {
	needs.Root(t, "to read a JVM")
	g := startTimed(t, needs.JDK(t), "work", 100, 1)
	for _, test := range []struct {
		method        string
		loaded, found bool
		near          string
	}{
		{"java.lang.String.hashCode", true, true, ""},
		{"Timed.main", true, true, ""},
		{"Timed.mian", true, false, "Timed.main"},
		{"java.lang.String.isEmtpy", true, false, "java.lang.String.isEmpty"},
		{"java.lang.String.isEmpty(I)Z", true, false, "java.lang.String.isEmpty()Z"},
		{"com.acme.Timed.main", false, false, "Timed.main"},
		{"com.acme.NotThere.nothingLikeIt", false, false, ""},
	} {
		m, err := ParseMethod(test.method)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		known, err := Find(t.Context(), "", g.PID(), m)
		if err != nil || known.Class != test.loaded || known.Method != test.found ||
			!strings.HasPrefix(strings.Join(known.Near, " "), test.near) {
			t.Errorf("%s: %+v, %v", test.method, known, err)
		}
		t.Logf("%s: %+v in %v", test.method, known, time.Since(began))
	}
}
