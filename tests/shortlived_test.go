package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Commands that end before the agent looks at them have their names, by the records of the kernel.
func TestShortLived(t *testing.T) {
	needs.Root(t, "sampling")
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	worker := filepath.Join(dir, "shortlived")
	if err := os.Symlink(shell, worker); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "out.folded")
	const (
		work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done" // some ten milliseconds
		loop = `n=0; while [ $n -lt 40 ]; do "$0" -c "$1"; n=$((n+1)); done`
	)
	mustSucceed(t, "record", "-F", "499", "-o", path, "--", shell, "-c", loop, worker, work)
	folded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	named := false
	for stack := range strings.Lines(string(folded)) {
		process, _, _ := strings.Cut(stack, ";")
		if named = named || process == "shortlived"; strings.HasPrefix(process, "[unknown]") {
			t.Errorf("of no process: %s", stack)
		}
	}
	if !named {
		t.Errorf("no sample of the commands:\n%s", folded)
	}
}
