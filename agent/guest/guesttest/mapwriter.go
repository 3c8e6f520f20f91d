// Package guesttest makes processes for tests that need one in procfs.
package guesttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A MapWriter is a process with a map of its code, in a procfs of the test's making. Its pid is
// 100; it knows itself as 3.
type MapWriter struct {
	Root     proc.Root
	Identity proc.Identity
	Path     string // path of its map
	Dir      string // directory of the process in Root
	t        testing.TB
}

// CodeAt is where a MapWriter has compiled code, 64 KiB of it.
const CodeAt = 0x7f3814003000

// NewMapWriter makes a process that has no map yet.
func NewMapWriter(t testing.TB) *MapWriter {
	t.Helper()
	root := t.TempDir()
	w := &MapWriter{Root: proc.Root(root), Dir: filepath.Join(root, "100"), t: t}
	w.Path = filepath.Join(w.Dir, "root/tmp/perf-3.map")
	w.File("stat", "100 (js) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0\n")
	w.File("status", fmt.Sprintf("Tgid:\t100\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\nGid:\t0\t0\t0\t0\nNSpid:\t100\t3\n",
		os.Getuid()))
	w.File("maps", "00400000-00500000 r-xp 00000000 fe:00 12 /usr/bin/js\n7f3814003000-7f3814013000 rwxp 00000000 "+
		"00:00 0 \n")
	w.File("root/tmp/other", "")
	var err error
	if w.Identity, err = w.Root.Identify(100); err != nil {
		t.Fatal(err)
	}
	return w
}

// File writes a file into the process's directory.
func (w *MapWriter) File(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// Write writes lines into the map, after those that are there.
func (w *MapWriter) Write(lines ...string) {
	w.t.Helper()
	f, err := os.OpenFile(w.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		w.t.Fatal(err)
	}
}

// NativeAt is a frame of code that is no attached VM's.
func NativeAt(pc uint64) bpf.Frame { return bpf.Frame(uint64(bpf.FrameNative)<<60 | pc) }
