package profiler

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFindAsync(t *testing.T) {
	home := t.TempDir()
	t.Setenv(AsyncHome, home)
	t.Setenv("PATH", t.TempDir())
	if got, err := FindAsync(); !errors.Is(err, ErrNoAsync) {
		t.Errorf("an empty directory has %+v, %v", got, err)
	}
	for _, path := range []string{"bin/asprof", "lib/libasyncProfiler.so"} {
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := Async{Command: filepath.Join(home, "bin", "asprof"),
		Library: filepath.Join(home, "lib", "libasyncProfiler.so")}
	if got, err := FindAsync(); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	t.Setenv(AsyncHome, "")
	if got, err := FindAsync(); !errors.Is(err, ErrNoAsync) {
		t.Errorf("without asprof in PATH there is %+v, %v", got, err)
	}
	t.Setenv("PATH", filepath.Join(home, "bin"))
	if got, err := FindAsync(); err != nil || filepath.Clean(got.Library) != filepath.Clean(want.Library) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
