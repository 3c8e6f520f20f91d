package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

func TestGuestSocket(t *testing.T) {
	// dir makes the directory of the socket and returns it.
	dir := func(t *testing.T, env *Env) string {
		d := filepath.Dir(env.GuestSocket)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	// locks makes the lock's file and fills /proc/locks, where FILE stands for it.
	locks := func(lines string) func(*testing.T, *Env) {
		return func(t *testing.T, env *Env) {
			setFile(t, dir(t, env), "guest.sock.lock", "")
			var st unix.Stat_t
			if err := unix.Stat(env.GuestSocket+".lock", &st); err != nil {
				t.Fatal(err)
			}
			file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
			setProc(t, env, "locks", strings.ReplaceAll(lines, "FILE", file))
		}
	}
	for _, tt := range []struct {
		name  string
		setup func(*testing.T, *Env)
		want  Status
		says  string // somewhere in detail, why or remedy
	}{
		{"first start", func(*testing.T, *Env) {}, OK, "run/vmprof-agent/guest.sock"},
		{"started before", locks(""), OK, "guest.sock"},
		{"an agent has it", locks("1: POSIX  ADVISORY  READ  7 00:01:2 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 FILE 0 " +
			"EOF\n"), Info, "process 4711 owns the socket for VMs"},
		{"what to change", locks("1: FLOCK  ADVISORY  WRITE 4711 FILE 0 EOF\n"), Info,
			"End process 4711, or use another path: --guest-socket"},
		{"other locks", locks("1: FLOCK  ADVISORY  WRITE 4711 00:01:2 0 EOF\n2: POSIX  ADVISORY  WRITE 4711 FILE 0 " +
			"EOF\n2: -> FLOCK  ADVISORY  WRITE 4712 FILE 0 EOF\n"), OK, ""},
		{"strange locks", locks("1: FLOCK\n\n1: FLOCK  ADVISORY  WRITE all FILE 0 EOF\n"), Info, "cannot find out"},
		{"no list of locks", func(t *testing.T, env *Env) { setFile(t, dir(t, env), "guest.sock.lock", "") }, Info,
			"cannot find out"},
		{"a file in the way", func(t *testing.T, env *Env) { setFile(t, dir(t, env), "guest.sock", "precious") }, Info,
			"--guest-socket"},
		{"a file above", func(t *testing.T, env *Env) {
			setFile(t, filepath.Dir(dir(t, env)), "file", "")
			env.GuestSocket = filepath.Join(filepath.Dir(filepath.Dir(env.GuestSocket)), "file", "guest.sock")
		}, Info, "file is not a directory"},
		{"closed to others", func(t *testing.T, env *Env) {
			if err := os.Chmod(dir(t, env), 0o700); err != nil {
				t.Fatal(err)
			}
		}, Info, "chmod 755"},
		{"no page", func(_ *testing.T, env *Env) { env.MapPage = fails(unix.ENOMEM) }, Info, "cannot allocate memory"},
		{"no right to pages", func(_ *testing.T, env *Env) {
			env.MapPage, env.Capable = fails(unix.EPERM), capabilities()
		}, Info, "cap_bpf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := healthy(t)
			tt.setup(t, env)
			before := files(t, filepath.Dir(env.Proc.String()))
			r := findGuestSocket(env)
			if text := r.Detail + "\n" + r.Why + "\n" + r.Remedy; r.Status != tt.want ||
				!strings.Contains(text, tt.says) {
				t.Errorf("%s, want %s and %q:\n%s", r.Status, tt.want, tt.says, text)
			}
			if after := files(t, filepath.Dir(env.Proc.String())); after != before {
				t.Errorf("what was there is\n%s\nand then\n%s", before, after)
			}
		})
	}
}

// files lists what is in a directory.
func files(t *testing.T, dir string) string {
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		list = append(list, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "\n")
}

// The kernel says who has a lock, as it writes it.
func TestLockOwner(t *testing.T) {
	env := healthy(t)
	env.Proc = proc.DefaultRoot
	lock, err := os.Create(filepath.Join(t.TempDir(), "guest.sock.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	owner := func() int {
		t.Helper()
		pid, err := lockOwner(env, lock.Name())
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	if pid := owner(); pid != 0 {
		t.Errorf("process %d has a lock that nobody took", pid)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if pid := owner(); pid != os.Getpid() {
		t.Errorf("process %d has the lock of process %d", pid, os.Getpid())
	}
	if pid, err := lockOwner(env, lock.Name()+"/nowhere"); pid != 0 || err != nil {
		t.Errorf("process %d, %v have the lock of a file that is not there", pid, err)
	}
}
