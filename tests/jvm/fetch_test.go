package jvm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOpenFetched(t *testing.T) {
	cache := t.TempDir()
	with := filepath.Join(cache, "11-amd64", Root, "java-11-openjdk-amd64")
	write(t, filepath.Join(with, "release"), "JAVA_VERSION=\"11.0.33\"\n")
	without := filepath.Join(cache, "8-amd64", Root, "java-8-openjdk-amd64")
	write(t, filepath.Join(without, "bin", "java"), "")
	write(t, filepath.Join(cache, "8-amd64", "packages"),
		"libc6_2.43-7_amd64.deb\nopenjdk-8-jre-headless_8u504-ga-1_amd64.deb\n")
	for home, want := range map[string]JDK{
		with:    {Home: with, Root: filepath.Join(cache, "11-amd64"), Version: 11, Release: "11.0.33"},
		without: {Home: without, Root: filepath.Join(cache, "8-amd64"), Version: 8, Release: "8u504"},
	} {
		if got, err := openFetched(home); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := openFetched(filepath.Join(cache, "nothing")); err == nil {
		t.Error("a directory outside of any root was taken for a JDK")
	}
}

func TestFindScript(t *testing.T) {
	if path, err := findScript(); err != nil || !isFile(path) {
		t.Errorf("got %q, %v", path, err)
	}
}

// In another root, the launcher has its path there, and the required directories are visible at
// their own paths.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	jar := filepath.Join(dir, "guest.jar")
	write(t, jar, "")
	c := Command{JDK: JDK{Home: Root + "/jdk"}, Flags: []string{"-Xint"}, Classpath: []string{jar}, Main: "Main",
		Args: []string{"x"}}
	java := []string{Root + "/jdk/bin/java", "-Xint", "-classpath", jar, "Main", "x"}
	if process, err := Process(t.Context(), c); err != nil || !slices.Equal(process.Args, java) {
		t.Errorf("got %v, %v", process, err)
	}

	c.JDK, c.Dirs = JDK{Home: "/cache/11" + Root + "/jdk", Root: "/cache/11"}, []string{"/archives"}
	process, err := newRoot(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat([]string{"/cache/11", "2", "/archives", dir},
		java); !slices.Equal(process.Args[len(process.Args)-len(want):], want) {
		t.Errorf("got %s, want it to end in %s", strings.Join(process.Args, " "), strings.Join(want, " "))
	}
}
