package record

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

func TestCountFlag(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--count=com.acme.Api.handle -p 1", ""},
		{"--count=com.acme.Api::handle -e cpu,alloc -p shop", ""},
		{"--count=com.acme.Api.handle(I)V --breakpoints=always --budget=2% -p 1", ""},
		{"--count=com.acme.Api.handle", "--count needs the JVMs"},
		{"--count=handle -p 1", "want class.method"},
		{"--count=a.B.c -e cpu,calls -p 1", "remove -e calls"},
		{"--count=a.B.c -e alloc -p 1", "--count needs -e cpu"},
		{"--count=a.B.c -e cpu,lock --monitor-enters -p 1", "--monitor-enters"},
	} {
		o, err := parseRecord(strings.Fields(test.args), io.Discard)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) ||
			!cli.IsMisuse(err)) {
			t.Errorf("record %s: %v, want %q", test.args, err, test.want)
		}
		if err == nil && o.parts()[0].Content&sink.CallCounts == 0 {
			t.Errorf("record %s has no place for calls", test.args)
		}
	}
	if o, err := parseRecord(nil, io.Discard); err != nil || o.count.take() != nil ||
		o.parts()[0].Content != sink.Time {
		t.Errorf("without --count: %v", err)
	}
}

// Calls of a process that a window does not have are in the next one.
func TestCountFill(t *testing.T) {
	m, err := hotspot.ParseMethod("com.acme.Api.handle")
	if err != nil {
		t.Fatal(err)
	}
	c := countFlags{method: m, counter: new(hotspot.Counter)}
	windows := []*profile.Profile{{Processes: []*profile.Process{{PID: 7}}},
		{Processes: []*profile.Process{{PID: 7}, {PID: 8}}}}
	c.fill(windows[0], map[int]hotspot.Count{7: {Calls: 10}, 8: {Calls: 20, Error: 3}}, false)
	counts := c.join(map[int]hotspot.Count{})
	if got := counts[8]; got.Calls != 20 || got.Error != 3 {
		t.Errorf("process 8 has %+v to come", got)
	}
	c.fill(windows[1], counts, false)
	var got []float64
	for _, w := range windows {
		for _, p := range w.Processes {
			for _, calls := range p.Calls {
				got = append(got, calls.Graph.Total())
			}
		}
	}
	if want := []float64{10, 20}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	if again := c.join(map[int]hotspot.Count{}); len(again) != 0 {
		t.Errorf("calls are counted twice: %v", again)
	}
}
