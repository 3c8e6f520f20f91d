package sink_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/sink/sinktest"
)

// Samples of certain contexts carry no label, so that files of walked stacks stay as they are.
func TestContextLabels(t *testing.T) {
	got := make(map[string]int64)
	for _, s := range sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.ShopChained())).Sample {
		got[strings.Join(s.Label["context"], "+")] += s.Value[0]
	}
	if want := (map[string]int64{"": 863, "ambiguous": 120, "fitted": 13, "unplaced": 4}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("samples by label: %v, want %v", got, want)
	}
}

// Entries are a column next to samples, also of contexts that were only entered.
func TestPprofEntries(t *testing.T) {
	p := &profile.Profile{Period: 10, Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: sinktest.Entered(
		sinktest.Sampled{Weight: 0, Frames: sinktest.Stack{sinktest.GetNode, sinktest.Get, sinktest.Total}}, sinktest.Sampled{Weight: 4, Frames: sinktest.Stack{sinktest.Total}},
	)}}}}}
	var got []string
	for _, s := range sinktest.MustPprof(t, p).Sample {
		got = append(got, fmt.Sprint(s.Location[0].Line[0].Function.Name, s.Value, s.Label["attribution"]))
	}
	// Nobody was in getNode, so there is no time that may belong to it.
	if want := "[com.acme.Cart.total[4 40 1] [] java.util.HashMap.get[0 0 1] [] java.util.HashMap.getNode[0 0 1] []]"; fmt.Sprint(got) != want {
		t.Errorf("samples %v, want %s", got, want)
	}
	for content, want := range map[sink.Content]string{
		sink.Time: "samples cpu", sink.Time | sink.Entries: "samples cpu entries", sink.Time | sink.CallCounts | sink.Entries: "samples cpu calls entries",
		sink.CallCounts | sink.Entries: "calls",
	} {
		stored, err := sink.Pprof(sinktest.ShopPartial(), content)
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, s := range stored.SampleType {
			types = append(types, s.Type)
		}
		if got := strings.Join(types, " "); got != want {
			t.Errorf("content %b has the columns %s, want %s", content, got, want)
		}
	}
	if got := sink.ContentOf(sinktest.ShopPartial()); got != sink.Time|sink.Entries {
		t.Errorf("content of a partial walk: %b", got)
	}
}
