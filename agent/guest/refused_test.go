package guest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A file that is refused for a process counts once, whatever it is opened for and however often it
// is looked for on the way.
func TestRefusedFiles(t *testing.T) {
	const path = "/usr/bin/js" // path of the mapping, and of whatever else is opened
	causes := []struct {
		cause string // "": it is missing, which is no refusal of a file that need not be there
		make  func(path string) error
	}{
		{"denied", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0)
		}},
		{"too_large", func(path string) error {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				return err
			}
			return os.Truncate(path, maxDebugFile+1) // the largest of all bounds
		}},
		{"not_regular", func(path string) error { return unix.Mkfifo(path, 0o644) }},
		{"replaced", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
		{"other", func(path string) error { return os.Symlink(filepath.Base(path), path) }}, // to itself
		{"", func(string) error { return nil }},
	}
	users := []struct {
		name   string
		mapped bool // a missing file is a failed read
		open   func(w *mapWriter, m *proc.Mapping)
	}{
		{"symbols", true, func(w *mapWriter, m *proc.Mapping) { w.rs.object(w.Process, m); w.rs.object(w.Process, m) }},
		{"symbols of two parts, later", true, func(w *mapWriter, m *proc.Mapping) {
			w.rs.object(w.Process, m)
			w.work.objects = map[uint64]*symbolize.Object{}
			other := *m
			other.Start += 0x100
			if f, err := w.rs.root.OpenMapped(w.PID, m, maxExecutable); err == nil {
				f.Close()
			} else if proc.Refused(err) {
				w.rs.object(w.Process, &other)
				w.rs.Open(w.Process, m)
			}
		}},
		{"lines", true, func(w *mapWriter, m *proc.Mapping) { w.rs.source(w.Process, m); w.rs.source(w.Process, m) }},
		{"a library", true, func(w *mapWriter, m *proc.Mapping) {
			if _, err := w.rs.Open(w.Process, m); err == nil {
				t.Error("a library that is refused is open")
			}
		}},
		{"a debug file", false, func(w *mapWriter, m *proc.Mapping) {
			for _, f := range w.rs.openDebugFile(w.PID, path) {
				f.Close()
				t.Error("a debug file that is refused is open")
			}
		}},
		{"an argument file", false, func(w *mapWriter, m *proc.Mapping) {
			if err := os.Symlink("/usr/bin/java", filepath.Join(w.Dir, "exe")); err != nil {
				t.Fatal(err)
			}
			w.File("cmdline", "java\x00@"+path+"\x00Main\x00")
			w.rs.identify(w.Process)
		}},
	}
	for _, link := range []bool{false, true} { // the kernel's, to what is mapped
		for _, user := range users {
			for _, tt := range causes {
				switch {
				case !user.mapped && (link || tt.cause == "replaced"):
					continue // it has no mapping
				case link && (tt.cause == "replaced" || tt.cause == "other" || tt.cause == ""):
					continue // the kernel's link leads to the file itself
				}
				t.Run(fmt.Sprintf("%s/%s/link=%v", user.name, tt.cause, link), func(t *testing.T) {
					w := newMapWriter(t)
					w.File("status", fmt.Sprintf("Name:\tjava\nTgid:\t100\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\nGid:\t4242\t4242\t4242\t4242\nNSpid:\t100\t3\n", os.Getuid()))
					file := filepath.Join(w.Dir, "root", path)
					if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := tt.make(file); err != nil {
						t.Fatal(err)
					}
					m := &proc.Mapping{Start: 0x400000, Limit: 0x500000, Exec: true, Inode: 1, Path: path}
					var st unix.Stat_t
					if unix.Lstat(file, &st) == nil {
						m.Dev, m.Inode = st.Dev, st.Ino
					}
					if tt.cause == "replaced" {
						m.Inode++
					}
					if link { // its path leads nowhere any more
						mapped := filepath.Join(w.Dir, "mapped")
						links := filepath.Join(w.Dir, "map_files")
						if err := os.Rename(file, mapped); err != nil {
							t.Fatal(err)
						}
						if err := os.Mkdir(links, 0o755); err != nil {
							t.Fatal(err)
						}
						for _, part := range []string{"400000-500000", "400100-500000"} {
							if err := os.Symlink(mapped, filepath.Join(links, part)); err != nil {
								t.Fatal(err)
							}
						}
					}
					w.work.objects = map[uint64]*symbolize.Object{}
					user.open(w, m)
					want := map[string]uint64{}
					switch {
					case tt.cause != "":
						want[tt.cause] = 1
					case user.mapped:
						want["not_found"] = 1
					}
					got := maps.Clone(w.rs.reads.failures)
					if got == nil {
						got = map[string]uint64{}
					}
					if !maps.Equal(got, want) {
						t.Errorf("failures %v, want %v", got, want)
					}
				})
			}
		}
	}
}
