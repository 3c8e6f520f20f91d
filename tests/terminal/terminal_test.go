package terminal

import (
	"os/exec"
	"strings"
	"testing"
)

// When a program has ended, all that it wrote is there, and nothing else.
func TestEnded(t *testing.T) {
	for range 10 {
		term := Start(t, exec.Command("sh", "-c", "seq 1 20000; echo end"))
		<-term.Ended
		if got := term.Text(); !strings.HasPrefix(got, "1\r\n2\r\n") || !strings.HasSuffix(got, "20000\r\nend\r\n") {
			t.Fatalf("%d bytes were read: …%q", len(got), got[max(0, len(got)-100):])
		}
	}
}
