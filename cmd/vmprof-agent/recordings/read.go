// Package recordings has the verbs report and compare, which read what was recorded: files,
// directories of files, what a running serve records now, and its history.
package recordings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
)

// maxRecordings bounds the files of a directory that are compared.
const maxRecordings = 4096

// Read reads a recording, or those in a directory, in the order of their names.
func Read(name string) (list []compare.Named, err error) {
	files, err := recordings(name)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		p, err := input.ReadFile(file)
		if err != nil {
			return nil, err
		}
		list = append(list, compare.Named{Name: file, Profile: p})
	}
	return list, nil
}

// recordings returns the profiles in a directory, in the order of their names, or the file itself.
func recordings(name string) (files []string, err error) {
	if about, err := os.Stat(name); err != nil || !about.IsDir() {
		return []string{name}, nil // reading it reports the error
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("list recordings: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".pb.gz") {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("%s has no recordings: files whose names end in .pb.gz", name)
	case len(files) > maxRecordings:
		return nil, fmt.Errorf("%s has more than %d recordings", name, maxRecordings)
	}
	return files, nil
}
