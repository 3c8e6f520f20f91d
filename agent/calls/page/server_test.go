package page

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "guest.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{path: 0o666, filepath.Dir(path): 0o755} {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != want {
			t.Errorf("mode of %s is %v, %v, want %v", file, st.Mode(), err, want)
		}
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent: %v", err)
	}
	conn, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatalf("the second agent has harmed the first: %v", err)
	}
	conn.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
	l, err = listen(path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	// An agent that is killed leaves its socket behind, but not the lock.
	l.UnixListener.SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if l, err = listen(path); err != nil {
		t.Fatalf("after one was killed: %v", err)
	}
	l.Close()
}

// A file that is not a socket is not removed.
func TestListenInTheWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guest.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("error %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("the file was changed")
	}
}

// A process that sends without end is read at the limited rate, with no pause longer than an interval.
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
