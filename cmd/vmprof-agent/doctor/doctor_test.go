package doctor

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/python"
)

// TestInspect has the doctor look at a JVM of every version that is installed.
func TestInspect(t *testing.T) {
	for _, jdk := range needs.JDKs(t) {
		guest, err := guests.Start(t.Context(), jdk, guests.Programs()[0], guests.Flavour{})
		if err != nil {
			t.Fatal(err)
		}
		defer guest.Close()
		env := doctor.Host()
		env.Inspect = inspector(env.Proc, env.Pool, env.Runtimes)
		found := false
		for _, j := range doctor.Run(t.Context(), env).JVMs {
			if j.PID != guest.PID() {
				continue
			}
			found = true
			if j.Status != doctor.OK || len(j.Supports) != 5 || !strings.Contains(j.VM, "OpenJDK") {
				t.Errorf("JDK %d: %+v", jdk.Version, j)
			}
		}
		if !found {
			t.Errorf("JDK %d: process %d was not found", jdk.Version, guest.PID())
		}
	}
}

// TestInspectPython has the doctor look at a CPython of every version that is installed.
func TestInspectPython(t *testing.T) {
	for _, python := range python.Find() {
		guest, err := python.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer guest.Close()
		env := doctor.Host()
		env.Inspect = inspector(env.Proc, env.Pool, env.Runtimes)
		found := false
		for _, j := range doctor.Run(t.Context(), env).Interpreters {
			if j.PID != guest.PID() {
				continue
			}
			found = true
			if j.Status != doctor.OK || len(j.Supports) != 1 || j.Supports[0].Feature != "Python frames" ||
				!strings.Contains(j.VM, "CPython "+python.String()) {
				t.Errorf("%s: %+v", python.Path, j)
			}
		}
		if !found {
			t.Errorf("%s: process %d was not found", python.Path, guest.PID())
		}
	}
}
