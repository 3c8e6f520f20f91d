package advise

import (
	"io"
	"strings"
	"testing"
)

// The hints of advise go to a file: stdout has the text about them, and no file is named -.
func TestAdviseNotToStdout(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range Names() {
		err := Run(t.Context(), []string{"--for=" + name, "-o", "-", "calls.pb.gz"}, io.Discard, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), "-o needs a file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
