package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// VMs of all users may connect.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "guest.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("mode of %s is %v, %v", path, st.Mode(), err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "another agent") ||
		!strings.Contains(err.Error(), "--guest-socket") {
		t.Errorf("a second agent: %v", err)
	}
}

// A process that sends without end is read at the limited rate, with no pause longer than an
// interval.
func TestPacer(t *testing.T) {
	p := pacer{rate: 1000}
	now := time.Unix(0, 0)
	for range 10_000 {
		now = now.Add(10*time.Microsecond + p.next(now))
	}
	if took := now.Sub(time.Unix(0, 0)); took < 9*time.Second || took > 11*time.Second {
		t.Errorf("10,000 messages at 1000 a second took %v", took)
	}
	var idle pacer
	idle.rate = 1000
	for range 100 {
		if pause := idle.next(now); pause != 0 {
			t.Fatalf("a slow guest waits %v", pause)
		}
		now = now.Add(10 * time.Millisecond)
	}
}
