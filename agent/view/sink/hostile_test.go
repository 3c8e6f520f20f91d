package sink_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

func TestHostileEvents(t *testing.T) {
	for _, kind := range sinktest.AllKinds() {
		for _, name := range sinktest.HostileNames {
			checkHostileEvents(t, sinktest.WithEvents(sinktest.Hostile(name, name, 3), kind, name, 30))
		}
	}
}

// checkHostileEvents is checkHostile for a window of events.
func checkHostileEvents(t *testing.T, p *profile.Profile) {
	t.Helper()
	stored := sinktest.MustPprof(t, p)
	if again := sinktest.Reparse(t, stored); again.String() != stored.String() {
		t.Errorf("the profile reads back as\n%.2000s\ninstead of\n%.2000s", again, stored)
	}
	for _, s := range stored.Sample {
		for key, values := range s.Label {
			if v := values[0]; !utf8.ValidString(v) || len(v) > 1024 || strings.ContainsAny(v, "\x00\n\x1b\u202e") {
				t.Errorf("label %s %.100q (%d bytes)", key, v, len(v))
			}
		}
	}
	var text bytes.Buffer
	for _, view := range []sinktest.ViewFunc{report.Report, report.Methods, report.Tree} {
		if err := view(&text, stored, nil); err != nil {
			t.Fatal(err)
		}
	}
	side := compare.Named{Name: "a\x1b[2J", Profile: stored}
	for _, by := range []compare.By{compare.ByMethod, compare.ByContext, compare.ByClass} {
		compare.Profiles(&text, side, side, &compare.Options{By: by}) // There may be nothing to compare.
	}
	if err := sink.Collapsed(&text, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	if out := text.String(); !utf8.ValidString(out) || strings.ContainsAny(out, "\x00\x1b\u202e") {
		t.Errorf("the report would steer a terminal: %q", out)
	}
}

// FuzzPprofEvents: whatever a guest calls its classes, the file reads back and the views are plain
// text.
func FuzzPprofEvents(f *testing.F) {
	for i, name := range sinktest.HostileNames {
		f.Add(name, "java", uint8(i), uint32(7))
	}
	f.Fuzz(func(t *testing.T, name, comm string, kind uint8, weight uint32) {
		checkHostileEvents(t, sinktest.WithEvents(sinktest.Hostile(name, comm, 0),
			profile.EventKind(kind)%profile.EventKinds, name, weight))
	})
}

func TestHostileNames(t *testing.T) {
	for _, name := range sinktest.HostileNames {
		checkHostile(t, sinktest.Hostile(name, name, 3), 6)
		checkHostile(t, sinktest.WithCalls(sinktest.Hostile(name, name, 3), name, 2), 6)
	}
}

// checkHostile checks that p makes a profile that pprof reads back with all samples, whose strings
// are UTF-8 and bounded, and which the views show without a control character.
func checkHostile(t *testing.T, p *profile.Profile, samples int64) {
	t.Helper()
	written := sinktest.MustPprof(t, p)
	var file bytes.Buffer
	if err := written.Write(&file); err != nil {
		t.Fatal(err)
	}
	for _, read := range []func() (*pprof.Profile, error){
		func() (*pprof.Profile, error) { return pprof.ParseData(file.Bytes()) },
		func() (*pprof.Profile, error) { return input.Read(bytes.NewReader(file.Bytes())) },
	} {
		parsed, err := read()
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		if stacks.HasTime(parsed) { // else all weights are 0
			for _, s := range parsed.Sample {
				sum += s.Value[0]
			}
		}
		if sum != samples {
			t.Errorf("%d samples, want %d", sum, samples)
		}
		if parsed.String() != written.String() {
			t.Errorf("the profile reads back as\n%.2000s\ninstead of\n%.2000s", parsed, written)
		}
	}
	check := func(what, s string) {
		if !utf8.ValidString(s) || len(s) > 1024 || strings.ContainsAny(s, "\x00\n\x1b\u202e") {
			t.Errorf("%s %.100q (%d bytes)", what, s, len(s))
		}
	}
	for _, f := range written.Function {
		check("function", f.Name)
		check("system name", f.SystemName)
		check("file", f.Filename)
	}
	for _, m := range written.Mapping {
		check("mapping", m.File)
		check("build id", m.BuildID)
	}
	for _, c := range written.Comments {
		if !utf8.ValidString(c) || len(c) > 4096 && !stored.IsMetadata(c) {
			t.Errorf("comment %.100q (%d bytes)", c, len(c))
		}
	}
	for _, s := range written.Sample {
		for key, values := range s.Label {
			check("label "+key, values[0])
		}
	}
	var text bytes.Buffer
	views := []sinktest.ViewFunc{report.Report, report.Contexts}
	if stacks.HasCalls(written) {
		views = append(views, report.Layers)
	}
	for _, view := range views {
		if err := view(&text, written, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, by := range []compare.By{compare.ByMethod, compare.ByEdge} {
		side := compare.Named{Name: "a\x1b[2J", Profile: written}
		if err := compare.Profiles(&text, side, side, &compare.Options{By: by}); err != nil && samples > 0 {
			t.Fatal(err)
		}
	}
	if out := text.String(); !utf8.ValidString(out) || strings.ContainsAny(out, "\x00\x1b\u202e") {
		t.Errorf("the report would steer a terminal: %q", out)
	}
}

func FuzzPprof(f *testing.F) {
	for _, name := range sinktest.HostileNames {
		f.Add(name, "java", uint32(1))
	}
	f.Add("a", "java", uint32(0)) // no samples, so that the calls are all there is
	f.Fuzz(func(t *testing.T, name, comm string, weight uint32) {
		checkHostile(t, sinktest.Hostile(name, comm, weight), 2*int64(weight))
		checkHostile(t, sinktest.WithCalls(sinktest.Hostile(name, comm, weight), name, weight), 2*int64(weight))
	})
}
