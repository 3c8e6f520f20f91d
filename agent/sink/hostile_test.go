package sink_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// hostileNames are names that a target may choose to break a format or to steer a terminal.
var hostileNames = []string{
	"",
	" ",
	"two\nlines 42",
	"frame;frame 7",
	`quote" and \backslash`,
	"nul\x00nul",
	"\xff\xfe not UTF-8 \xe2\x82",
	"\u202eright to left\u202c",
	"שלום עולם",
	"\x1b]0;title\x07\x1b[2J",
	"percent %s %d %n",
	strings.Repeat("long", 1<<18), // 1 MB
	strings.Repeat("é", 1000),
}

// hostile is a window in which every string is name, except the command.
func hostile(name, comm string, weight uint32) *profile.Profile {
	frame := symbolize.Frame{
		Function: name, SystemName: name, File: name, Line: -1, Inlined: true, Kind: symbolize.KindNative,
		Mapping: unique.Make(symbolize.Mapping{File: name, BuildID: name, Start: 1 << 63, Limit: 1}),
	}
	outer := frame
	outer.Kind, outer.Line = symbolize.KindKernel, 1<<40
	root := frame // claims to be inlined into nothing
	root.Kind = symbolize.KindJIT
	return &profile.Profile{
		Period: 1, Event: name, Comments: []string{name},
		Processes: []*profile.Process{{
			PID: 1, Comm: comm, Runtime: name, Service: name, Notes: []string{name}, Executable: frame.Mapping.Value(),
			Contexts: &profile.Contexts{Mode: profile.ContextChain, Walked: uint64(weight), Nodes: 1},
			Threads: []*profile.Thread{{TID: 2, Name: name, Context: profile.Fitted, Tree: contextTree(
				sampled{uint64(weight), []symbolize.Frame{frame, outer, root}},
				sampled{uint64(weight), nil},
			)}},
		}},
	}
}

// withCalls adds calls between methods of that name.
func withCalls(p *profile.Profile, name string, weight uint32) *profile.Profile {
	method := symbolize.Frame{Function: name, SystemName: name, File: name, Kind: symbolize.KindJIT, Mapping: unique.Make(symbolize.Mapping{File: name})}
	native := method
	native.Kind, native.Line = symbolize.KindNative, -1
	p.Processes[0].Calls = []*profile.Calls{{Engine: name, Graph: callGraph(
		called{method, profile.Site{Line: -1, Offset: -2}, native, float64(weight)},
		called{method, profile.Site{Line: 1 << 30, Offset: 1 << 30}, method, 1},
	)}}
	return p
}

// withEvents makes a window of events of one kind, with that name in every label.
func withEvents(p *profile.Profile, kind profile.EventKind, name string, weight uint32) *profile.Profile {
	frame := symbolize.Frame{Function: name, SystemName: name, File: name, Kind: symbolize.KindJIT, Mapping: unique.Make(symbolize.Mapping{File: name})}
	labels := profile.EventLabels{Class: name, Place: name, What: name, Field: name, Offset: -1 << 31, Probe: name, Value: name}
	value := float64(weight) / 3
	e := eventsOf(kind,
		event{[]symbolize.Frame{frame}, labels, uint64(weight), [profile.MaxEventValues]float64{value, value, value}},
		event{nil, profile.EventLabels{}, 1, [profile.MaxEventValues]float64{value}},
	)
	for i := range e.Rows {
		e.Rows[i].Thread = name
	}
	e.Basis = []string{name}
	p.Processes[0].Threads, p.Processes[0].Contexts, p.Processes[0].Events = nil, nil, []*profile.Events{e}
	p.EventCounts.Dropped = map[string]uint64{name: 1}
	return p
}

func TestHostileEvents(t *testing.T) {
	for _, kind := range allKinds() {
		for _, name := range hostileNames {
			checkHostileEvents(t, withEvents(hostile(name, name, 3), kind, name, 30))
		}
	}
}

// checkHostileEvents is checkHostile for a window of events.
func checkHostileEvents(t *testing.T, p *profile.Profile) {
	t.Helper()
	stored := mustPprof(t, p)
	if again := reparse(t, stored); again.String() != stored.String() {
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
	for _, view := range []viewFunc{sink.Report, sink.Methods, sink.Tree} {
		if err := view(&text, stored, nil); err != nil {
			t.Fatal(err)
		}
	}
	side := sink.Named{Name: "a\x1b[2J", Profile: stored}
	for _, by := range []sink.By{sink.ByMethod, sink.ByContext, sink.ByClass} {
		sink.Compare(&text, side, side, &sink.CompareOptions{By: by}) // which may have nothing to compare
	}
	if err := sink.CollapsedOf(&text, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	if out := text.String(); !utf8.ValidString(out) || strings.ContainsAny(out, "\x00\x1b\u202e") {
		t.Errorf("the report would steer a terminal: %q", out)
	}
}

// FuzzPprofEvents: whatever a guest calls its classes, the file reads back and the views are plain text.
func FuzzPprofEvents(f *testing.F) {
	for i, name := range hostileNames {
		f.Add(name, "java", uint8(i), uint32(7))
	}
	f.Fuzz(func(t *testing.T, name, comm string, kind uint8, weight uint32) {
		checkHostileEvents(t, withEvents(hostile(name, comm, 0), profile.EventKind(kind)%profile.EventKinds, name, weight))
	})
}

func TestHostileNames(t *testing.T) {
	for _, name := range hostileNames {
		checkHostile(t, hostile(name, name, 3), 6)
		checkHostile(t, withCalls(hostile(name, name, 3), name, 2), 6)
	}
}

// checkHostile checks that p makes a profile that pprof reads back with all samples, whose strings are UTF-8 and
// bounded, and which the views show without a control character.
func checkHostile(t *testing.T, p *profile.Profile, samples int64) {
	t.Helper()
	stored := mustPprof(t, p)
	var file bytes.Buffer
	if err := stored.Write(&file); err != nil {
		t.Fatal(err)
	}
	for _, read := range []func() (*pprof.Profile, error){
		func() (*pprof.Profile, error) { return pprof.ParseData(file.Bytes()) },
		func() (*pprof.Profile, error) { return sink.Read(bytes.NewReader(file.Bytes())) },
	} {
		parsed, err := read()
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		if sink.HasTime(parsed) { // else all weights are 0
			for _, s := range parsed.Sample {
				sum += s.Value[0]
			}
		}
		if sum != samples {
			t.Errorf("%d samples, want %d", sum, samples)
		}
		if parsed.String() != stored.String() {
			t.Errorf("the profile reads back as\n%.2000s\ninstead of\n%.2000s", parsed, stored)
		}
	}
	check := func(what, s string) {
		if !utf8.ValidString(s) || len(s) > 1024 || strings.ContainsAny(s, "\x00\n\x1b\u202e") {
			t.Errorf("%s %.100q (%d bytes)", what, s, len(s))
		}
	}
	for _, f := range stored.Function {
		check("function", f.Name)
		check("system name", f.SystemName)
		check("file", f.Filename)
	}
	for _, m := range stored.Mapping {
		check("mapping", m.File)
		check("build id", m.BuildID)
	}
	for _, c := range stored.Comments {
		if !utf8.ValidString(c) || len(c) > 4096 {
			t.Errorf("comment %.100q (%d bytes)", c, len(c))
		}
	}
	for _, s := range stored.Sample {
		for key, values := range s.Label {
			check("label "+key, values[0])
		}
	}
	var text bytes.Buffer
	views := []viewFunc{sink.Report, sink.Contexts}
	if sink.HasCalls(stored) {
		views = append(views, sink.Layers)
	}
	for _, view := range views {
		if err := view(&text, stored, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, by := range []sink.By{sink.ByMethod, sink.ByEdge} {
		side := sink.Named{Name: "a\x1b[2J", Profile: stored}
		if err := sink.Compare(&text, side, side, &sink.CompareOptions{By: by}); err != nil && samples > 0 {
			t.Fatal(err)
		}
	}
	if out := text.String(); !utf8.ValidString(out) || strings.ContainsAny(out, "\x00\x1b\u202e") {
		t.Errorf("the report would steer a terminal: %q", out)
	}
}

func FuzzPprof(f *testing.F) {
	for _, name := range hostileNames {
		f.Add(name, "java", uint32(1))
	}
	f.Add("a", "java", uint32(0)) // no samples, so that the calls are all there is
	f.Fuzz(func(t *testing.T, name, comm string, weight uint32) {
		checkHostile(t, hostile(name, comm, weight), 2*int64(weight))
		checkHostile(t, withCalls(hostile(name, comm, weight), name, weight), 2*int64(weight))
	})
}
