package sink_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// Samples of certain contexts carry no label, so that files of walked stacks stay as they are.
func TestContextLabels(t *testing.T) {
	got := make(map[string]int64)
	for _, s := range sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.ShopChained())).Sample {
		got[strings.Join(s.Label["context"], "+")] += s.Value[0]
	}
	if want := (map[string]int64{"": 863, "ambiguous": 120, "fitted": 13,
		"unplaced": 4}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("samples by label: %v, want %v", got, want)
	}
}

// Entries are a column next to samples, also of contexts that were only entered.
func TestPprofEntries(t *testing.T) {
	p := &profile.Profile{Period: 10, Processes: []*profile.Process{{PID: 1,
		Threads: []*profile.Thread{{TID: 1, Tree: sinktest.Entered(
			sinktest.Sampled{Weight: 0, Frames: sinktest.Stack{sinktest.GetNode, sinktest.Get, sinktest.Total}},
			sinktest.Sampled{Weight: 4, Frames: sinktest.Stack{sinktest.Total}},
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
		sink.Time: "samples cpu", sink.Time | sink.Entries: "samples cpu entries",
		sink.Time | sink.CallCounts | sink.Entries: "samples cpu calls entries",
		sink.CallCounts | sink.Entries:             "calls",
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

// The CPU time of a file is that of its threads, though a sample of one stands for more than one of
// another, and some time has no sample.
func TestCPUTime(t *testing.T) {
	p := &profile.Profile{Period: 10, Processes: []*profile.Process{{PID: 1, Comm: "java", Threads: []*profile.Thread{
		{TID: 1, SampleTime: 12.4, Unseen: 7, UnseenIn: profile.Waking, Tree: sinktest.Entered(
			sinktest.Sampled{Weight: 1, Frames: sinktest.Stack{sinktest.GetNode, sinktest.Get}},
			sinktest.Sampled{Weight: 1, Frames: sinktest.Stack{sinktest.Get}},
			sinktest.Sampled{Weight: 3, Frames: sinktest.Stack{sinktest.Total}},
		)},
		{TID: 2, Unseen: 30, UnseenIn: profile.NotSampled},
		{TID: 3, Tree: sinktest.Entered(sinktest.Sampled{Weight: 2, Frames: sinktest.Stack{sinktest.Total}})},
	}}}}
	stored := sinktest.MustPprof(t, p)
	sums := make(map[string][2]int64)
	var samples, cpu int64
	for _, s := range stored.Sample {
		key := fmt.Sprint(s.NumLabel["tid"][0], s.Location[0].Line[0].Function.Name)
		sums[key] = [2]int64{sums[key][0] + s.Value[0], sums[key][1] + s.Value[1]}
		samples, cpu = samples+s.Value[0], cpu+s.Value[1]
	}
	if sums["1[waking]"] != [2]int64{0, 7} || sums["2[not sampled]"] != [2]int64{0, 30} || samples != 7 || cpu != 62+7+
		30+20 {
		t.Errorf("%d samples, %d ns: %v", samples, cpu, sums)
	}
	if got := sinktest.Show(t, report.Methods, stored, nil); !strings.Contains(got,
		"25.2%       0   25.2%       0      [not sampled]\n") {
		t.Errorf("the report lacks what was not sampled:\n%s", got)
	}
}
