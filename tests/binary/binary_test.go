package binary

import (
	"os"
	"path/filepath"
	"testing"
)

// What was built before is copied, as an executable; what was not is an error, even where there is
// a compiler.
func TestBuilt(t *testing.T) {
	built, dir := t.TempDir(), t.TempDir()
	t.Setenv(Built, built)
	if err := os.WriteFile(filepath.Join(built, "program"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := Build(t.Context(), "example.org/cmd/program", dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || path != filepath.Join(dir, "program") || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("got %s, %v", path, info)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := Build(t.Context(), "example.org/cmd/other", dir); err == nil {
		t.Error("a program that was not built has a path")
	}
}
