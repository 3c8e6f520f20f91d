package guest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file that was rewritten in place keeps its inode, and is another one all the same.
func TestFileKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	var keys []any
	for i := range 3 {
		if err := os.WriteFile(path, make([]byte, 1+i/2), 0o644); err != nil { // the first two are of one size
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		key, err := openKey(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range keys {
			if before == any(key) {
				t.Errorf("version %d has the key of another one: %+v", i, key)
			}
		}
		keys = append(keys, key)
	}
}

// A process does not choose where the agent looks in its own root, but for the name below the
// directory for debug files.
func TestIsInstalled(t *testing.T) {
	for path, want := range map[string]bool{
		"/usr/lib/debug/.build-id/ca/fe.debug": true, "/usr/lib/debug/opt/libz.debug": true,
		"/net/elsewhere/libz.debug": false, "/usr/lib/debugger/libz.debug": false,
	} {
		if got := isInstalled(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
