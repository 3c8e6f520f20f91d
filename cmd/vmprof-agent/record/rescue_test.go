package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A recording whose disk is full is in the next place that has room, and what is printed says
// where.
func TestRecordingOnFullDisk(t *testing.T) {
	full := fullDisk(t)
	file, page := filepath.Join(full, "a.pb.gz"), filepath.Join(full, "a.html")
	o, err := parseRecord([]string{"-p", "1", "-o", file, "-o", page}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	room := t.TempDir()
	o.rescue = &rescuer{t.Context(), io.Discard, []string{filepath.Join(full, "missing"), full, room}, time.Millisecond}
	outputs, together := o.outputs()
	_, failed, err := o.store(io.Discard, windowOf(4), nil, outputs)
	if err != nil {
		t.Fatal(err)
	}
	together, err = o.writeTogether(io.Discard, outputs, together)
	if failed = errors.Join(failed, err); !errors.Is(failed, syscall.ENOSPC) ||
		strings.Count(failed.Error(), "It was written to "+room) != 2 {
		t.Errorf("the error is %v", failed)
	}
	var out bytes.Buffer
	if err := o.summarize(&out, outputs, together, false); err != nil {
		t.Fatal(err)
	}
	for _, where := range append(together, outputs[0].path) {
		if info, err := os.Stat(where); err != nil || info.Size() == 0 ||
			!strings.Contains(out.String(), "written to "+where+"\n") {
			t.Errorf("%s: %v, and the summary is\n%s", where, err, out.String())
		}
	}
	if left, err := filepath.Glob(filepath.Join(full, "vmprof-*")); err != nil || len(left) > 0 {
		t.Errorf("left on the full disk: %v, %v", left, err)
	}
}

// If no place has room, the recording stays in memory until one has.
func TestRecordingInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pb.gz")
	var said bytes.Buffer
	attempts := 0
	r := &rescuer{t.Context(), &said, nil, time.Millisecond}
	where, err := r.write(path, func(to string) error {
		if attempts++; attempts < 4 {
			return &os.PathError{Op: "write", Path: to, Err: syscall.ENOSPC}
		}
		return nil
	})
	if err != nil || where != path || attempts != 4 || !strings.Contains(said.String(),
		"stays in memory until there is room") {
		t.Errorf("%q after %d attempts, %v, and it said %q", where, attempts, err, said.String())
	}
	if where, err := r.write(path, func(string) error { return errors.New("not a profile") }); where != "" ||
		err == nil {
		t.Errorf("another error: %q, %v", where, err)
	}
}

// fullDisk is a directory on a file system of its own that has no room.
func fullDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); errors.Is(err, unix.EPERM) {
		t.Skip("mounting is not allowed")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<16), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return dir
}
