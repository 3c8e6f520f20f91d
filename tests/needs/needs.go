// Package needs gives tests what they need of a machine. Where it is missing a test is skipped with
// that reason; in CI, where the environment has CI=true, it fails.
package needs

import (
	"os"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// JDKs returns every JDK, oldest first: one at least.
func JDKs(t testing.TB) []jvm.JDK {
	t.Helper()
	found, err := jvm.Find(jvm.Root)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		Missing(t, jvm.ErrNoJDK)
	}
	return found
}

// JDK returns the oldest JDK.
func JDK(t testing.TB) jvm.JDK {
	t.Helper()
	return JDKs(t)[0]
}

// Fetched returns JDKs of these versions that scripts/jdks has fetched, oldest first. In CI it
// fetches them.
func Fetched(t testing.TB, versions ...string) []jvm.JDK {
	t.Helper()
	fetch := jvm.Fetched
	if os.Getenv("CI") == "true" {
		fetch = jvm.Fetch
	}
	found, err := fetch(t.Context(), versions...)
	if err != nil {
		Missing(t, err)
	}
	return found
}

// Root says that the test needs root, for that.
func Root(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, what+" needs root")
	}
}

// Missing ends the test for want of something.
func Missing(t testing.TB, why any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
