package sink_test

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// Times of several windows add up, sizes do not. Versions and callees share their names.
func TestInliningOfWindows(t *testing.T) {
	window := func(second time.Duration) *profile.Profile {
		p := versions()
		p.Start = p.Start.Add(second * time.Second)
		p.Processes[0].Inlining = &profile.Inlining{
			Limits: profile.InlineLimits{FreqInlineSize: 325},
			Callees: []profile.Callee{{Method: "app.Main.get()V", Bytecode: 40},
				{Method: "app.Main.put()V", Bytecode: 412, Entering: time.Second}},
		}
		return p
	}
	w := sink.NewWindows(sink.Time | sink.CallCounts)
	for _, p := range []*profile.Profile{window(0), window(10)} {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	p, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	m, err := stored.MetadataOf(p)
	if err != nil || len(m.Inlining) != 1 || m.Inlining[0].PID != 7 || m.Inlining[0].Limits.FreqInlineSize != 325 ||
		len(m.Inlining[0].Callees) != 2 {
		t.Fatalf("%v: %+v", err, m)
	}
	put := m.Inlining[0].Callees[1]
	if put.Bytecode != 412 || put.Entering != 2*time.Second || put.Method != m.Versions[0].Method ||
		m.MethodName(put.Method) != "app.Main.put()V" {
		t.Errorf("%+v of %q", put, m.Methods)
	}
}
