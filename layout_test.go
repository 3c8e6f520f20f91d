package vmprofagent

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxEntries is how many files and folders a folder of the product may have: one can still read
// their list.
const maxEntries = 20

// uncounted are files that do not add to what one has to read of a folder: tests, and what bpf2go
// generates.
var uncounted = regexp.MustCompile(`_test\.go$|_bpfel\.(go|o)$|_bpfel_test\.o$`)

// Folders of the product stay small enough to be read: what grows beyond that gets rooms.
func TestFoldersAreSmall(t *testing.T) {
	entries := map[string]int{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case path == "." || !entry.IsDir() && filepath.Dir(path) == ".":
			return nil // files at the root are where tools expect them
		case entry.IsDir() && (strings.HasPrefix(name, ".") || name == "testdata" || path == "tests" ||
			path == "web" || path == "docs" || path == "bin"):
			return filepath.SkipDir
		case !uncounted.MatchString(name):
			entries[filepath.ToSlash(filepath.Dir(path))]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, n := range entries {
		if n > maxEntries {
			t.Errorf("%s has %d entries besides tests and generated files, more than %d: move some that belong "+
				"together into a folder of their own", folder, n, maxEntries)
		}
	}
}
