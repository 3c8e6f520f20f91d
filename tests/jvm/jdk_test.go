package jvm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	for dir, release := range map[string]string{
		"temurin-25":    "IMPLEMENTOR=\"Eclipse\"\nJAVA_VERSION=\"25.0.3\"\n",
		"java-17":       "JAVA_VERSION=\"17.0.15\"\n",
		"no-version":    "LIBC=\"gnu\"\n",
		"early-version": "JAVA_VERSION=\"26-ea\"\n",
	} {
		write(t, filepath.Join(root, dir, "release"), release)
		write(t, filepath.Join(root, dir, "bin", "javac"), "")
	}
	write(t, filepath.Join(root, "jre-17", "release"), "JAVA_VERSION=\"17.0.1\"\n") // without a compiler
	if err := os.Symlink("java-17", filepath.Join(root, "default")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("gone", filepath.Join(root, "dangling")); err != nil {
		t.Fatal(err)
	}

	got, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("got %v, want two JDKs", got)
	}
	if got[0].Release != "17.0.15" || got[0].Version != 17 || got[1].Release != "25.0.3" || got[1].Version != 25 {
		t.Errorf("got %v, want 17.0.15 and 25.0.3", got)
	}
}

func TestFindNowhere(t *testing.T) {
	got, err := Find(filepath.Join(t.TempDir(), "nothing"))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want no JDKs and no error", got, err)
	}
}

func TestOldest(t *testing.T) {
	root := t.TempDir()
	if _, err := oldest(root); !errors.Is(err, ErrNoJDK) {
		t.Errorf("got %v, want ErrNoJDK", err)
	}
	for _, version := range []string{"21.0.1", "25", "11.0.2"} {
		write(t, filepath.Join(root, version, "release"), "JAVA_VERSION=\""+version+"\"\n")
		write(t, filepath.Join(root, version, "bin", "javac"), "")
	}
	if got, err := oldest(root); err != nil || got.Version != 21 {
		t.Errorf("got %v, %v; want the oldest one that guests run on", got, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
