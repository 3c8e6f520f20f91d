// Package observed keeps what the agent's trials have found out about kernels:
// agent/probe/attach.TestKernelFeatures makes the trials, on every kernel that tests run on, and
// compares the outcome with what is kept. docs/reliability.md has it as a table (go test
// ./tests/faults -run TestDocument -update). After a change, and for further kernels:
//
//	go run ./tests/kernels -kernels 6.1,6.12,newest -run '^TestKernelFeatures$' -observed agent/probe/attach/testdata/kernels.json ./agent/probe/attach
//	go test ./agent/probe/attach -run '^TestKernelFeatures$' -observed testdata/kernels.json    # this machine's kernel
package observed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A Kernel is what the agent found on one kernel.
type Kernel struct {
	Release  string    `json:"release"` // as uname has it
	Features []Feature `json:"features"`
}

// A Feature is one thing that the agent tries.
type Feature struct {
	Name  string `json:"name"`
	Found string `json:"found"` // "yes", "no", or a name
}

// Series is the kernel's major and minor version, "6.12"; the release if it has none.
func (k Kernel) Series() string {
	major, minor := k.version()
	if major == 0 {
		return k.Release
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

func (k Kernel) version() (major, minor int) {
	if _, err := fmt.Sscanf(k.Release, "%d.%d", &major, &minor); err != nil {
		return 0, 0
	}
	return major, minor
}

// Read returns the kernels in a file, the oldest first; none if there is no file.
func Read(path string) (kernels []Kernel, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &kernels); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return kernels, nil
}

// Find returns what is known of the kernel's series.
func Find(kernels []Kernel, k Kernel) (known Kernel, ok bool) {
	i := slices.IndexFunc(kernels, func(other Kernel) bool { return other.Series() == k.Series() })
	if i < 0 {
		return Kernel{}, false
	}
	return kernels[i], true
}

// Record writes a kernel into a file, in the place of another one of its series.
func Record(path string, k Kernel) error {
	kernels, err := Read(path)
	if err != nil {
		return err
	}
	kernels = slices.DeleteFunc(kernels, func(other Kernel) bool { return other.Series() == k.Series() })
	kernels = append(kernels, k)
	slices.SortFunc(kernels, func(a, b Kernel) int {
		majorA, minorA := a.version()
		majorB, minorB := b.version()
		return cmp.Or(cmp.Compare(majorA, majorB), cmp.Compare(minorA, minorB))
	})
	text, err := json.MarshalIndent(kernels, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// String is one line, from which Parse makes the kernel.
func (k Kernel) String() string {
	text, err := json.Marshal(k)
	if err != nil {
		return err.Error()
	}
	return "observed " + string(text)
}

var line = regexp.MustCompile(`(?m)observed (\{.*\})$`)

// Parse finds the line of a kernel in the output of a test.
func Parse(output string) (k Kernel, ok bool) {
	m := line.FindStringSubmatch(output)
	return k, m != nil && json.Unmarshal([]byte(m[1]), &k) == nil
}

// Markdown is the table of features and kernels. without has what the agent does without a feature,
// by its name.
func Markdown(kernels []Kernel, without map[string]string) string {
	table := report.Table{Header: []string{"Feature"}}
	var names []string
	for _, k := range kernels {
		table.Header = append(table.Header, k.Series())
		for _, f := range k.Features {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	table.Header = append(table.Header, "Without it")
	for _, name := range names {
		row := []string{name}
		for _, k := range kernels {
			row = append(row, k.found(name))
		}
		table.Add(append(row, without[name])...)
	}
	var releases []string
	for _, k := range kernels {
		releases = append(releases, k.Release)
	}
	return table.Markdown() + "\nTried on " + strings.Join(releases, ", ") + ".\n"
}

// found is what the kernel has of a feature; "not tried" if that is not known.
func (k Kernel) found(name string) string {
	for _, f := range k.Features {
		if f.Name == name {
			return f.Found
		}
	}
	return "not tried"
}
