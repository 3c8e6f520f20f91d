package outfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// nobody is a user that is not root.
const nobody = 65534

func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// directory makes a directory with that mode, whatever the umask.
func directory(t *testing.T, mode uint32) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "directory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// check fails unless a file has that content and mode.
func check(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	info, statErr := os.Lstat(path)
	if err := errors.Join(err, statErr); err != nil {
		t.Fatal(err)
	}
	if string(got) != content || info.Mode() != mode {
		t.Errorf("%s has %q, mode %v; want %q, %v", path, got, info.Mode(), content, mode)
	}
}

func TestModes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o027))
	own, shared := directory(t, 0o755), directory(t, 0o777|unix.S_ISVTX)
	for _, dir := range []string{own, shared} {
		if err := os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "old"), 0o664); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"old", "new"} {
			if err := Write(filepath.Join(dir, name), writes(name)); err != nil {
				t.Fatal(err)
			}
		}
		check(t, filepath.Join(dir, "old"), "old", 0o664)
	}
	check(t, filepath.Join(own, "new"), "new", 0o640)
	check(t, filepath.Join(shared, "new"), "new", 0o600)
}

// A link is replaced, not what it leads to.
func TestLinkIsReplaced(t *testing.T) {
	dir := directory(t, 0o755)
	behind, link := filepath.Join(dir, "behind"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(behind, []byte("stays"), 0o600), os.Symlink("behind", link)); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, writes("new")); err != nil {
		t.Fatal(err)
	}
	check(t, behind, "stays", 0o600)
	check(t, link, "new", 0o666&^os.FileMode(umask()))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// A file that cannot be completed leaves what was there before.
func TestFailedWrite(t *testing.T) {
	dir := directory(t, 0o755)
	path := filepath.Join(dir, "file")
	if err := Write(path, writes("before")); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("cannot be encoded")
	if err := Write(path, func(w io.Writer) error { return errors.Join(writes("half")(w), failure) }); !errors.Is(err,
		failure) {
		t.Errorf("Write = %v", err)
	}
	check(t, path, "before", 0o666&^os.FileMode(umask()))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// What is not a file stays, and so does what a link leads to.
func TestNoFile(t *testing.T) {
	dir := directory(t, 0o755)
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink("/dev/null", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo, link} {
		if err := errors.Join(Check(path), Write(path, writes("new"))); !errors.Is(err, errNoFile) ||
			!strings.Contains(err.Error(), "choose another name") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
}

// In a directory where everybody may create files, names and links of others are left alone, of
// files as of directories.
func TestForeignNames(t *testing.T) {
	needs.Root(t, "another user's files")
	shared, secret := directory(t, 0o777|unix.S_ISVTX), directory(t, 0o700)
	file := filepath.Join(secret, "shadow")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"file": file, "dangling": filepath.Join(secret, "new"), "directory": secret,
		"chain": "directory", "loop": "loop"}
	for name, to := range links {
		path := filepath.Join(shared, name)
		if err := errors.Join(os.Symlink(to, path), os.Lchown(path, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	plain := filepath.Join(shared, "plain")
	if err := errors.Join(os.WriteFile(plain, []byte("nobody's"), 0o644), os.Chown(plain, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "own")
	if err := os.Symlink(filepath.Join(shared, "directory"), outside); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(shared, "file"), filepath.Join(shared, "dangling"), plain,
		filepath.Join(shared, "directory/shadow"), filepath.Join(shared, "chain/shadow"),
		filepath.Join(shared, "loop/shadow"),
		filepath.Join(outside, "shadow"), shared + "/./../directory/file/shadow",
	} {
		for what, err := range map[string]error{"Check": Check(path), "Write": Write(path, writes("new"))} {
			if !errors.Is(err, ErrForeign) {
				t.Errorf("%s of %s: %v", what, path, err)
			}
		}
	}
	check(t, file, "secret", 0o600)
	if left, err := os.ReadDir(secret); err != nil || len(left) != 1 {
		t.Errorf("the other directory has %v, %v", left, err)
	}
}

// On the way to a file, links and directories of others are refused wherever these may have put
// them, and so are links that they may have moved. Links of root, such as /var/run, are followed,
// and directories of others in their own.
func TestForeignDirectories(t *testing.T) {
	needs.Root(t, "another user's directories")
	top := directory(t, 0o755)
	make := func(path string, uid int, mode uint32) {
		path = filepath.Join(top, path)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, uid, uid), unix.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	make("secret", 0, 0o755)
	make("theirs", nobody, 0o755)
	make("theirs/own", nobody, 0o755)
	make("tmp", 0, 0o777|unix.S_ISVTX)
	make("tmp/theirs", nobody, 0o777)
	make("tmp/roots", 0, 0o755)
	make("open", 0, 0o777)
	make("open/theirs", nobody, 0o755)
	for path, uid := range map[string]int{
		"theirs/link": nobody, "theirs/roots-link": 0, "tmp/link": nobody, "tmp/theirs/link": nobody,
		"tmp/roots-link": 0, "tmp/twice": 0, "open/link": nobody, "open/roots-link": 0,
		"link": nobody, "roots-link": 0,
	} {
		path = filepath.Join(top, path)
		if err := errors.Join(os.Symlink(filepath.Join(top, "secret"), path), os.Lchown(path, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(top, "tmp/twice"), filepath.Join(top, "tmp/again")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(top, "theirs/link"), filepath.Join(top, "to-link")); err != nil {
		t.Fatal(err)
	}
	for path, refused := range map[string]bool{
		"secret": false, "theirs": false, "theirs/own": false, "tmp": false, "tmp/roots": false,
		"tmp/roots-link": false, "roots-link": false, "open": false, "theirs/../secret": false,
		"theirs/link": true, "theirs/roots-link": true, "theirs/own/../link": true, "tmp/link": true,
		"tmp/theirs": true, "tmp/theirs/link": true, "tmp/twice": true,
		"open/link": true, "open/roots-link": true, "open/theirs": true, "link": true, "to-link": true,
	} {
		err := Write(top+"/"+path+"/file", writes("new"))
		if refused != errors.Is(err, ErrForeign) || refused != (err != nil) {
			t.Errorf("%s: %v", path, err)
		}
		if err := os.Remove(filepath.Join(top, path, "file")); refused != errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Write("/proc/self/cwd/file", writes("new")); err == nil || !strings.Contains(err.Error(), "procfs") {
		t.Errorf("a link of procfs: %v", err)
	}
}

func TestMakeDir(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	top := directory(t, 0o755)
	for _, tt := range []struct {
		path    string
		parents bool
		want    error
	}{{"a/b", false, unix.ENOENT}, {"a/b/", true, nil}, {"a/c", false, nil}, {"a/c", true, nil},
		{"file", false, unix.ENOTDIR}, {"link/d", false, nil}} {
		if tt.path == "file" {
			if err := errors.Join(os.WriteFile(filepath.Join(top, "file"), nil, 0o600),
				os.Symlink("a", filepath.Join(top, "link"))); err != nil {
				t.Fatal(err)
			}
		}
		dir, err := MakeDir(top+"/"+tt.path, 0o775, tt.parents)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.path, err, tt.want)
		}
		if err != nil {
			continue
		}
		unix.Close(dir)
		if info, err := os.Stat(filepath.Join(top, tt.path)); err != nil || info.Mode() != os.ModeDir|0o755 {
			t.Errorf("%s: %v, %v", tt.path, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(top, "a/d")); err != nil {
		t.Error(err)
	}
}

// Links of one's own are followed to a directory.
func TestOwnLinks(t *testing.T) {
	shared, to := directory(t, 0o777|unix.S_ISVTX), directory(t, 0o755)
	if err := errors.Join(os.Symlink(to, filepath.Join(shared, "mine")),
		os.Symlink("mine", filepath.Join(shared, "again"))); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"mine", "again", "again/.", "mine/../" + filepath.Base(to)} {
		path := shared + "/" + name + "/" + strconv.Itoa(i)
		if err := Write(path, writes(name)); err != nil {
			t.Error(err)
			continue
		}
		check(t, filepath.Join(to, strconv.Itoa(i)), name, 0o666&^os.FileMode(umask()))
	}
	deep := shared
	for i := range maxLinks + 2 {
		next := filepath.Join(shared, fmt.Sprint("deep", i))
		if err := os.Symlink(deep, next); err != nil {
			t.Fatal(err)
		}
		deep = next
	}
	if err := Write(deep+"/file", writes("new")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%d links: %v", maxLinks+2, err)
	}
}

// With sudo, a file in the user's directory is the user's, and in a shared one the user's file is
// no other's.
func TestBehindSudo(t *testing.T) {
	needs.Root(t, "another user's directory")
	t.Setenv("SUDO_UID", strconv.Itoa(nobody))
	t.Setenv("SUDO_GID", strconv.Itoa(nobody))
	theirs, shared := directory(t, 0o755), directory(t, 0o777|unix.S_ISVTX)
	old := filepath.Join(shared, "file")
	if err := errors.Join(os.Chown(theirs, nobody, nobody), os.WriteFile(old, nil, 0o600),
		os.Chown(old, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{filepath.Join(theirs, "file"): nobody, old: 0} {
		if err := Write(path, writes("new")); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Uid != want {
			t.Errorf("%s belongs to %d, want %d: %v", path, st.Uid, want, err)
		}
	}
}
