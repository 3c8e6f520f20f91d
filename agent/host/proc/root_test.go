package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPIDs(t *testing.T) {
	root := Root(t.TempDir())
	for _, name := range []string{"1", "20", "3", "self", "0", "-5", "4194305", "1x", "99999999999999999999"} {
		must(t, os.Mkdir(filepath.Join(root.String(), name), 0o755))
	}
	if pids, err := root.PIDs(); err != nil || !slices.Equal(pids, []int{1, 3, 20}) {
		t.Errorf("PIDs = %v, %v; want 1, 3 and 20", pids, err)
	}
	if pids, err := Root("").PIDs(); err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("PIDs = %v, %v; want this process among them", pids, err)
	}
	if _, err := Root("/nowhere").PIDs(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PIDs of nothing = %v", err)
	}
}

func TestReadIsBounded(t *testing.T) {
	root := Root(t.TempDir())
	must(t, os.Mkdir(filepath.Join(root.String(), "1"), 0o755))
	must(t, os.WriteFile(filepath.Join(root.String(), "1", "comm"), make([]byte, maxComm+1), 0o644))
	if s, err := root.Comm(1); s != "" || !errors.Is(err, ErrTooLarge) {
		t.Errorf("Comm = %q, %v; want %v", s, err, ErrTooLarge)
	}
}

func TestCause(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{fmt.Errorf("read: %w", ErrTimeout), "timeout"},
		{explain(1, "read", unix.ESRCH), "gone"},
		{explain(1, "read", unix.ENOENT), "gone"},
		{explain(1, "read", unix.EACCES), "denied"},
		{explain(1, "read", unix.EPERM), "denied"},
		{explain(1, "read", unix.EMFILE), "other"},
		{fs.ErrNotExist, "not_found"},
	} {
		got := Cause(tt.err)
		if got != tt.want {
			t.Errorf("Cause(%v) = %q, want %q", tt.err, got, tt.want)
		}
		if tt.err != nil && !slices.Contains(Causes(), got) {
			t.Errorf("Causes lacks %q", got)
		}
	}
}
