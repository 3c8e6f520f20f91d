// Package sinktest holds windows of a made-up shop and hostile windows, for the tests of packages
// that write and read profiles.
package sinktest

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// BrokenPipe is where nothing can be written.
type BrokenPipe struct{}

func (BrokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Sentences are the comments of a profile without its metadata.
func Sentences(p *pprof.Profile) []string {
	return slices.DeleteFunc(slices.Clone(p.Comments), stored.IsMetadata)
}

// Metadata is what a profile says about itself.
func Metadata(t *testing.T, p *pprof.Profile) *stored.Metadata {
	t.Helper()
	m, err := stored.MetadataOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// MustStored writes the profile of w and reads it back.
func MustStored(t *testing.T, w *sink.Windows) *pprof.Profile {
	t.Helper()
	stored, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	return Reparse(t, stored)
}

func MustPprof(t *testing.T, p *profile.Profile) *pprof.Profile {
	t.Helper()
	stored, err := sink.Pprof(p, sink.ContentOf(p))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// Foreign is a profile as other tools write them.
func Foreign(sampleType, unit string, values ...int64) *pprof.Profile {
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: sampleType, Unit: unit}}}
	for _, v := range values {
		p.Sample = append(p.Sample, &pprof.Sample{Value: []int64{v}})
	}
	return p
}

// WindowOf is one window of a stored profile.
func WindowOf(t *testing.T, p *pprof.Profile, n int64) *pprof.Profile {
	t.Helper()
	w, err := stacks.WindowOf(p, n)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Reparse writes p and reads it back as other tools would.
func Reparse(t *testing.T, p *pprof.Profile) *pprof.Profile {
	t.Helper()
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	parsed, err := pprof.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

var LocalTime = regexp.MustCompile(`(?m)^Time: .*`)

func AllKinds() (kinds []profile.EventKind) {
	for kind := range profile.EventKinds {
		kinds = append(kinds, kind)
	}
	return kinds
}

func MustPprofOf(t *testing.T, p *profile.Profile, content sink.Content) *pprof.Profile {
	t.Helper()
	stored, err := sink.Pprof(p, content)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

type ViewFunc func(io.Writer, *pprof.Profile, *layout.Options) error

func Show(t *testing.T, view ViewFunc, p *pprof.Profile, opts *layout.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := view(&out, p, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// ViewFooter is the footer as a view.
func ViewFooter(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	width := 79
	if opts != nil {
		width = opts.Width
	}
	return report.Footer(w, p, width)
}

var Update = flag.Bool("update", false, "rewrite the golden files")

// Golden compares got with testdata/name.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update)", err)
	}
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("%s differs (run the test with -update and look at the change):\n%s", path, got)
	}
}
