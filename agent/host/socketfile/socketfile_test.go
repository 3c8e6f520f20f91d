package socketfile

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

var everybody = Access{-1, -1, 0o666}

func TestListen(t *testing.T) {
	for _, network := range []string{"unix", "unixpacket"} {
		path := filepath.Join(t.TempDir(), "run", "a.sock")
		l, err := Listen(network, path, everybody)
		if err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]os.FileMode{path: 0o666, filepath.Dir(path): 0o755} {
			if st, err := os.Stat(file); err != nil || st.Mode().Perm() != want {
				t.Errorf("mode of %s is %v, %v, want %v", file, st.Mode(), err, want)
			}
		}
		if _, err := Listen(network, path, everybody); !errors.Is(err, ErrInUse) {
			t.Errorf("a second agent: %v", err)
		}
		conn, err := net.Dial(network, path)
		if err != nil {
			t.Fatalf("the second agent has harmed the first: %v", err)
		}
		conn.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is still there")
		}
		if l, err = Listen(network, path, everybody); err != nil {
			t.Fatalf("after the first has ended: %v", err)
		}
		// An agent that is killed leaves its socket behind, but not the lock.
		l.SetUnlinkOnClose(false)
		l.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Fatal(err)
		}
		if l, err = Listen(network, path, everybody); err != nil {
			t.Fatalf("after one was killed: %v", err)
		}
		l.Close()
	}
}

// What is in the way is left alone: files, links, and sockets on which others listen.
func TestListenInTheWay(t *testing.T) {
	dir := t.TempDir()
	file, link, dangling, other := filepath.Join(dir, "file"), filepath.Join(dir, "link"),
		filepath.Join(dir, "dangling"), filepath.Join(dir, "other")
	l, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.WriteFile(file, []byte("precious"), 0o600), os.Symlink(other, link),
		os.Symlink("nowhere", dangling)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{file: ErrNotSocket, link: ErrNotSocket, dangling: ErrNotSocket,
		other: ErrInUse} {
		for _, network := range []string{"unix", "unixpacket"} {
			if l, err := Listen(network, path, everybody); !errors.Is(err, want) {
				t.Errorf("%s: %v, %v, want %v", path, l, err, want)
			}
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file is %q, %v", b, err)
	}
	if to, err := os.Readlink(dangling); to != "nowhere" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if st, err := os.Stat(other); err != nil || st.Mode().Perm() == 0o666 {
		t.Errorf("the socket of another program: %v, %v", st, err)
	}
}

// Others must not be able to put a socket of their own in its place: neither in its directory, nor
// in one above.
func TestListenInDirectories(t *testing.T) {
	for mode, want := range map[os.FileMode]error{
		0o755: nil, 0o700: nil, 0o775: outfile.ErrReplaceable, 0o777: outfile.ErrReplaceable,
		0o777 | os.ModeSticky: nil,
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "own"), 0o755), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a.sock", "own/a.sock", "own/new/a.sock"} {
			l, err := Listen("unix", filepath.Join(dir, name), everybody)
			if !errors.Is(err, want) {
				t.Errorf("mode %v, %s: %v, want %v", mode, name, err, want)
			}
			if err == nil {
				l.Close()
			}
		}
	}
	if _, err := Listen("unix", filepath.Join(t.TempDir(), "a/b/a.sock"), everybody); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without two directories: %v", err)
	}
}

// What belongs to another user is left alone, and so are directories and links of others on the
// way.
func TestListenAmongOthers(t *testing.T) {
	needs.Root(t, "another user's files")
	const nobody = 65534
	dir, to := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Mkdir(filepath.Join(dir, "theirs"), 0o755),
		os.Mkdir(filepath.Join(dir, "theirs/roots"), 0o755),
		os.Symlink(to, filepath.Join(dir, "link")), os.Symlink(to, filepath.Join(dir, "roots-link")),
		os.WriteFile(filepath.Join(dir, "locked.lock"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dead", "owned"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	for _, name := range []string{"theirs", "link", "locked.lock", "dead", "owned"} {
		if err := os.Lchown(filepath.Join(dir, name), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]error{
		"theirs/a.sock": outfile.ErrForeign, "theirs/roots/a.sock": outfile.ErrForeign,
		"link/a.sock": outfile.ErrForeign, "locked": ErrForeign, "dead": ErrForeign, "roots-link/a.sock": nil,
	} {
		l, err := Listen("unix", filepath.Join(dir, name), everybody)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err == nil {
			l.Close()
		}
	}
	l, err := Listen("unix", filepath.Join(dir, "owned"), Access{nobody, -1, 0o600})
	if err != nil {
		t.Fatalf("the socket that an agent made for that user: %v", err)
	}
	l.Close()
}

// Only those may connect who are to.
func TestAccess(t *testing.T) {
	needs.Root(t, "sockets of other users")
	path := filepath.Join(t.TempDir(), "a.sock")
	l, err := Listen("unix", path, Access{4001, 4100, 0o620})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil || st.Uid != 4001 || st.Gid != 4100 || st.Mode&0o777 != 0o620 {
		t.Errorf("user %d, group %d, mode %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
}
