package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// fakeRoot makes a procfs in which process 1 has the returned directory as its root.
func fakeRoot(t *testing.T) (root Root, dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "1", "root")
	must(t, os.MkdirAll(filepath.Join(dir, "etc"), 0o755))
	fakeStatus(t, Root(top), os.Getuid(), os.Getgid())
	return Root(top), dir
}

// fakeStatus gives process 1 a user and a group.
func fakeStatus(t *testing.T, root Root, uid, gid int) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(string(root), "1", "status"), fmt.Appendf(nil,
		"Name:\tjava\nTgid:\t1\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%d\t%[2]d\t%[2]d\t%[2]d\nNSpid:\t1\n", uid, gid),
		0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenFile(t *testing.T) {
	const limit = 1 << 20
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, dir string) // makes etc/file
		err   error                          // nil: it reads "inside"
	}{
		{"regular", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "etc/file"), []byte("inside"), 0o644))
		}, nil},
		{"absolute link", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "other"), []byte("inside"), 0o644))
			must(t, os.Symlink("/other", filepath.Join(dir, "etc/file")))
		}, nil},
		{"link out of the root ends at the root", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "../outside"), []byte("outside"), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "outside"), []byte("inside"), 0o644))
			must(t, os.Symlink("../../../../outside", filepath.Join(dir, "etc/file")))
		}, nil},
		{"link to the host's files", func(t *testing.T, dir string) {
			must(t, os.Symlink("/usr/bin/env", filepath.Join(dir, "etc/file")))
		}, fs.ErrNotExist},
		{"link to itself", func(t *testing.T, dir string) {
			must(t, os.Symlink("file", filepath.Join(dir, "etc/file")))
		}, unix.ELOOP},
		{"FIFO", func(t *testing.T, dir string) {
			must(t, unix.Mkfifo(filepath.Join(dir, "etc/file"), 0o644))
		}, ErrNotRegular},
		{"link to a FIFO", func(t *testing.T, dir string) {
			must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
			must(t, os.Symlink("/fifo", filepath.Join(dir, "etc/file")))
		}, ErrNotRegular},
		{"socket", func(t *testing.T, dir string) {
			must(t, unix.Mknod(filepath.Join(dir, "etc/file"), unix.S_IFSOCK|0o644, 0))
		}, ErrNotRegular},
		{"directory", func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "etc/file"), 0o755))
		}, ErrNotRegular},
		{"sparse 10 GB", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "etc/file"), nil, 0o644))
			must(t, os.Truncate(filepath.Join(dir, "etc/file"), 10<<30))
		}, ErrTooLarge},
		{"missing", func(*testing.T, string) {}, fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, dir := fakeRoot(t)
			tt.setup(t, dir)
			f, err := root.OpenFile(1, "/etc/file", limit)
			if !errors.Is(err, tt.err) || (f == nil) == (err == nil) {
				t.Fatalf("OpenFile = %v, %v; want error %v", f, err, tt.err)
			}
			if err != nil {
				return
			}
			defer f.Close()
			if b, err := io.ReadAll(f); string(b) != "inside" || err != nil {
				t.Errorf("read %q, %v", b, err)
			}
		})
	}
}

// TestOpenFileOfThisProcess has a real procfs inside the root.
func TestOpenFileOfThisProcess(t *testing.T) {
	for _, tt := range []struct {
		path string
		err  error
	}{
		{"/proc/self/root/proc/self/stat", unix.ELOOP}, // a magic link
		{"/proc/self/fd/0", unix.ELOOP},
		{"/dev/zero", ErrNotRegular},
	} {
		f, err := Root("").OpenFile(os.Getpid(), tt.path, 1<<20)
		if f != nil || !errors.Is(err, tt.err) {
			t.Errorf("OpenFile(%q) = %v, %v; want error %v", tt.path, f, err, tt.err)
		}
	}
	if _, err := Root("").OpenFile(maxPID, "/etc/passwd", 1<<20); !errors.Is(err, ErrGone) {
		t.Errorf("OpenFile of nobody = %v, want %v", err, ErrGone)
	}
}

// mapFile maps a file into this process and returns its line in maps.
func mapFile(t *testing.T, path string) *Mapping {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 6, unix.PROT_READ, unix.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { unix.Munmap(mem) })
	maps, err := Root("").Maps(os.Getpid(), func(m *Mapping) bool { return m.Path == path })
	if err != nil || len(maps) != 1 {
		t.Fatalf("Maps = %v, %v; want one of %s", maps, err, path)
	}
	return &maps[0]
}

func TestOpenMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib\n.so")
	must(t, os.WriteFile(path, []byte("inside"), 0o644))
	m := mapFile(t, path)
	expect := func(when string, root Root, want error) {
		t.Helper()
		pid := os.Getpid()
		if root != "" {
			pid = 1
		}
		f, err := root.OpenMapped(pid, m, 1<<20)
		if !errors.Is(err, want) {
			t.Errorf("%s: OpenMapped = %v, want %v", when, err, want)
		}
		if err != nil {
			return
		}
		defer f.Close()
		if b, err := io.ReadAll(f); string(b) != "inside" || err != nil {
			t.Errorf("%s: read %q, %v", when, b, err)
		}
	}
	// One procfs has no map_files, as for an agent that may not use them; its process 1 has this
	// process's root.
	byPath := Root(t.TempDir())
	must(t, os.Mkdir(filepath.Join(byPath.String(), "1"), 0o755))
	must(t, os.Symlink("/", filepath.Join(byPath.String(), "1", "root")))
	fakeStatus(t, byPath, os.Getuid(), os.Getgid())

	expect("by path", byPath, nil)
	expect("by either", "", nil)
	must(t, os.Rename(path, path+".old"))
	expect("removed, by path", byPath, fs.ErrNotExist)
	must(t, os.WriteFile(path, []byte("other!"), 0o644))
	expect("replaced, by path", byPath, ErrReplaced)
	if os.Geteuid() == 0 {
		expect("replaced, by the kernel's link", "", nil)
	}
	m.Dev++
	must(t, os.Rename(path+".old", path))
	expect("same inode number on another file system", byPath, ErrReplaced)

	anonymous := &Mapping{Start: 1, Limit: 2, Path: "[heap]"}
	if _, err := Root("").OpenMapped(os.Getpid(), anonymous, 1<<20); !errors.Is(err, ErrNotRegular) {
		t.Errorf("OpenMapped of the heap = %v, want %v", err, ErrNotRegular)
	}
}

func TestStatMapped(t *testing.T) {
	needs.Root(t, "reading other processes") // for CAP_CHECKPOINT_RESTORE
	path := filepath.Join(t.TempDir(), "lib.so")
	must(t, os.WriteFile(path, []byte("inside"), 0o644))
	m := mapFile(t, path)
	must(t, os.Remove(path))
	if st, err := Root("").StatMapped(os.Getpid(), m); err != nil || st.Ino != m.Inode || st.Size != 6 {
		t.Errorf("StatMapped = inode %d of %d bytes, %v; want %d of 6", st.Ino, st.Size, err, m.Inode)
	}
	other := *m
	other.Inode++
	if _, err := Root("").StatMapped(os.Getpid(), &other); !errors.Is(err, ErrReplaced) {
		t.Errorf("StatMapped of another inode = %v, want %v", err, ErrReplaced)
	}
	if _, err := Root("").StatMapped(maxPID, m); !errors.Is(err, ErrGone) {
		t.Errorf("StatMapped of nobody = %v, want %v", err, ErrGone)
	}
}
