package sinktest

import (
	"strings"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// HostileNames are names that a target may choose to break a format or to steer a terminal.
var HostileNames = []string{
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

// Hostile is a window in which every string is name, except the command.
func Hostile(name, comm string, weight uint32) *profile.Profile {
	frame := symbol.Frame{
		Function: name, SystemName: name, File: name, Line: -1, Inlined: true, Kind: symbol.KindNative,
		Mapping: unique.Make(symbol.Mapping{File: name, BuildID: name, Start: 1 << 63, Limit: 1}),
	}
	outer := frame
	outer.Kind, outer.Line = symbol.KindKernel, 1<<40
	root := frame // claims to be inlined into nothing
	root.Kind = symbol.KindJIT
	return &profile.Profile{
		Period: 1, Event: name, Comments: []string{name},
		Processes: []*profile.Process{{
			PID: 1, Comm: comm, Runtime: name, Service: name, Notes: []string{name}, Executable: frame.Mapping.Value(),
			Contexts: &profile.Contexts{Mode: profile.ContextChain, Walked: uint64(weight), Nodes: 1},
			Threads: []*profile.Thread{{TID: 2, Name: name, Context: profile.Fitted, Tree: ContextTree(
				Sampled{uint64(weight), []symbol.Frame{frame, outer, root}},
				Sampled{uint64(weight), nil},
			)}},
		}},
	}
}

// WithCalls adds calls between methods of that name.
func WithCalls(p *profile.Profile, name string, weight uint32) *profile.Profile {
	method := symbol.Frame{Function: name, SystemName: name, File: name, Kind: symbol.KindJIT,
		Mapping: unique.Make(symbol.Mapping{File: name})}
	native := method
	native.Kind, native.Line = symbol.KindNative, -1
	p.Processes[0].Calls = []*profile.Calls{{Engine: name, Graph: CallGraph(
		Called{method, profile.Site{Line: -1, Offset: -2}, native, float64(weight)},
		Called{method, profile.Site{Line: 1 << 30, Offset: 1 << 30}, method, 1},
	)}}
	return p
}

// WithEvents makes a window of events of one kind, with that name in every label.
func WithEvents(p *profile.Profile, kind profile.EventKind, name string, weight uint32) *profile.Profile {
	frame := symbol.Frame{Function: name, SystemName: name, File: name, Kind: symbol.KindJIT,
		Mapping: unique.Make(symbol.Mapping{File: name})}
	labels := profile.EventLabels{Class: name, Place: name, What: name, Field: name, Offset: -1 << 31, Probe: name,
		Value: name}
	value := float64(weight) / 3
	e := EventsOf(kind,
		Event{[]symbol.Frame{frame}, labels, uint64(weight), [profile.MaxEventValues]float64{value, value, value}},
		Event{nil, profile.EventLabels{}, 1, [profile.MaxEventValues]float64{value}},
	)
	for i := range e.Rows {
		e.Rows[i].Thread = name
	}
	e.Basis = []string{name}
	p.Processes[0].Threads, p.Processes[0].Contexts, p.Processes[0].Events = nil, nil, []*profile.Events{e}
	p.EventCounts.Dropped = map[string]uint64{name: 1}
	return p
}
