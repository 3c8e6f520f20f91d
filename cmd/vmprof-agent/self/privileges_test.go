package self

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A link in a directory of another user is replaced there: where it leads does not matter.
func TestNeedsForLinks(t *testing.T) {
	needs.Root(t, "files of other users")
	const nobody = 65534
	theirs, own := t.TempDir(), t.TempDir()
	if err := os.Chown(theirs, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		in, to string
		want   bool
	}{{theirs, own, true}, {own, theirs, false}, {own, own, false}} {
		file, link := filepath.Join(test.to, "file"), filepath.Join(test.in, "link")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		if got := needsFor(cap.DAC_OVERRIDE, []string{link}); got != test.want {
			t.Errorf("link in %s to %s: %v, want %v", test.in, test.to, got, test.want)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}

// Files in a directory of the user behind sudo are given to that user.
func TestToWriteBehindSudo(t *testing.T) {
	needs.Root(t, "files of other users")
	file := filepath.Join(t.TempDir(), "file")
	for _, uid := range []string{"", "1000"} {
		t.Setenv("SUDO_UID", uid)
		if got := slices.Contains(toWrite([]string{file}), cap.CHOWN); got != (uid != "") {
			t.Errorf("SUDO_UID=%s: CAP_CHOWN is kept: %v", uid, got)
		}
		if slices.Contains(toWrite(nil), cap.CHOWN) {
			t.Errorf("SUDO_UID=%s: CAP_CHOWN is kept without a file", uid)
		}
	}
}
