package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A process does not learn by its name what its user may not read, though the agent may.
func TestReadRegularAsUser(t *testing.T) {
	root, dir := fakeRoot(t)
	user := os.Getuid() + 1
	must(t, os.WriteFile(filepath.Join(string(root), "1", "status"), fmt.Appendf(nil, "Name:\tjava\nTgid:\t1\nUid:\t%d\t%d\t%d\t%d\nGid:\t%[5]d\t%[5]d\t%[5]d\t%[5]d\nNSpid:\t1\n",
		user, user, user, user, os.Getgid()+1), 0o644))
	must(t, os.Mkdir(filepath.Join(dir, "open"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "private"), 0o755))
	for name, mode := range map[string]os.FileMode{"open/readable": 0o644, "open/secret": 0o640, "private/readable": 0o644} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("text"), mode))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	for link, to := range map[string]string{"open/link": "/open/readable", "open/out": "/private/readable", "open/dir": "/private"} {
		must(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	must(t, os.Chmod(filepath.Join(dir, "private"), 0o700))
	for name, want := range map[string]error{
		"/open/readable": nil, "/open/link": nil, "/open/../open/readable": nil,
		"/open/secret": ErrDenied, "/private/readable": ErrDenied, "/open/out": ErrDenied, "/open/dir/readable": ErrDenied,
	} {
		text, err := root.readRegular(1, name, 100)
		if !errors.Is(err, want) || want == nil && string(text) != "text" {
			t.Errorf("%s: %q, %v, want %v", name, text, err, want)
		}
	}
	if got := root.expand(1, "/", []string{"java", "@/open/readable", "@/open/secret"}); len(got) != 2 || got[1] != "text" {
		t.Errorf("arguments %q", got)
	}
}

// Whoever starts a set-uid program chooses its arguments.
func TestReadRegularAsSetUID(t *testing.T) {
	root, dir := fakeRoot(t)
	must(t, os.WriteFile(filepath.Join(dir, "readable"), []byte("text"), 0o644))
	for ids, want := range map[string]error{"0 0 0 0": nil, "1000 0 0 0": ErrDenied, "1000 1000 0 1000": ErrDenied} {
		must(t, os.WriteFile(filepath.Join(string(root), "1", "status"), fmt.Appendf(nil, "Name:\tjava\nTgid:\t1\nUid:\t%s\nGid:\t0 0 0 0\nNSpid:\t1\n", ids), 0o644))
		if text, err := root.readRegular(1, "/readable", 100); !errors.Is(err, want) || want == nil && string(text) != "text" {
			t.Errorf("ids %s: %q, %v, want %v", ids, text, err, want)
		}
	}
}
