package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestParseLibraries(t *testing.T) {
	const text = `/usr/bin/sh:
	linux-vdso.so.1 (0x00007ffd6a1f5000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5a2e200000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f5a2e450000)
/usr/lib/jvm/java-17/lib/libinstrument.so:
	libjava.so => /usr/lib/jvm/java-17/lib/libjava.so (0x00007f0c8a200000)
	libjvm.so => not found
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0c8a000000)
/usr/bin/static:
	not a dynamic executable
`
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/jvm/java-17/lib/libjava.so"}
	if got := parseLibraries([]byte(text)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChooseJDKs(t *testing.T) {
	installed := []jvm.JDK{{Version: 17}, {Version: 21}, {Version: 25}} // as jvm.Find returns them: oldest first
	for versions, want := range map[string][]int{"oldest": {17}, "25": {25}, "25,17": {17, 25}, "18": nil, "": nil} {
		got, err := chooseJDKs(installed, versions)
		if (err != nil) != (want == nil) {
			t.Errorf("%q: %v", versions, err)
		}
		if !slices.EqualFunc(got, want, func(j jvm.JDK, version int) bool { return j.Version == version }) {
			t.Errorf("%q: got %v, want %v", versions, got, want)
		}
	}
	if _, err := chooseJDKs(nil, "oldest"); err == nil {
		t.Error("a machine without a JDK has an oldest one")
	}
}

// A JDK's configuration may be elsewhere, behind links to files and directories.
func TestAddTree(t *testing.T) {
	from, other, s := t.TempDir(), t.TempDir(), stage{root: t.TempDir()}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(from, "bin"), 0o755),
		os.MkdirAll(filepath.Join(from, "jmods"), 0o755),
		os.MkdirAll(filepath.Join(other, "conf"), 0o755),
		os.WriteFile(filepath.Join(from, "bin", "java"), []byte("\x7fELFabc"), 0o755),
		os.WriteFile(filepath.Join(from, "jmods", "unneeded"), nil, 0o644),
		os.WriteFile(filepath.Join(other, "conf", "security"), []byte("text"), 0o600),
		os.Symlink(filepath.Join(other, "conf"), filepath.Join(from, "conf")),
		os.Symlink(filepath.Join(other, "conf", "security"), filepath.Join(from, "policy")),
		os.Symlink("gone", filepath.Join(from, "dangling")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.addTree(from, "/jdk", []string{"jmods"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"bin/java": "\x7fELFabc", "conf/security": "text", "policy": "text"} {
		if got, err := os.ReadFile(s.path("/jdk/" + name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(s.path("/jdk/bin/java")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the program has the mode %v, %v", info.Mode(), err)
	}
	if _, err := os.Stat(s.path("/jdk/jmods")); err == nil {
		t.Error("what is not needed was copied")
	}
	if want := []string{filepath.Join(from, "bin", "java")}; !slices.Equal(s.elf, want) {
		t.Errorf("ELF files are %q, want %q", s.elf, want)
	}
}
