package jvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCompile(t *testing.T) {
	jdk := require(t)
	build := Build{
		Sources: fstest.MapFS{
			"p/A.java":    {Data: []byte("package p; class A { B b; }")},
			"p/B.java":    {Data: []byte("package p; class B { }")},
			"q/input.txt": {Data: []byte("input")},
		},
		Release: MinVersion,
		Cache:   t.TempDir(),
	}
	dir, err := jdk.Compile(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"p/A.class", "p/B.class", "q/input.txt"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("after compiling: %v", err)
		}
	}

	// Compiled once: a second result would not have the mark.
	write(t, filepath.Join(dir, "mark"), "")
	again, err := jdk.Compile(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(again, "mark")); err != nil {
		t.Errorf("second compilation: %v", err)
	}

	// Another source is another result.
	build.Sources.(fstest.MapFS)["p/B.java"].Data = []byte("package p; class B { int i; }")
	other, err := jdk.Compile(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	if other == dir {
		t.Error("a changed source gave the old classes")
	}
}

func TestCompileError(t *testing.T) {
	jdk := require(t)
	cache := t.TempDir()
	_, err := jdk.Compile(t.Context(), Build{
		Sources: fstest.MapFS{"A.java": {Data: []byte("class A { nonsense }")}},
		Release: MinVersion,
		Cache:   cache,
	})
	if err == nil || !strings.Contains(err.Error(), "A.java:1") {
		t.Errorf("got %v, want the compiler's message", err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("a failed compilation left %v", left)
	}
}

// require returns a JDK, which CI must have.
func require(t *testing.T) JDK {
	t.Helper()
	jdk, err := Oldest()
	if err == nil {
		return jdk
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
	return JDK{}
}
