package engines

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Every engine has a complete row in the table, and records of its own.
func TestEngineTable(t *testing.T) {
	if got, want := Names(), []string{calls.Page, calls.Hotspot, calls.Listener, calls.USDT,
		calls.Branch}; !slices.Equal(got, want) {
		t.Errorf("engines are tried in the order %v, want %v", got, want)
	}
	records := map[uint8]string{}
	for _, s := range engineTable(Options{}) {
		if s.name == "" || s.purpose == "" || s.try == nil || s.guests == nil || s.silence == nil {
			t.Errorf("the row of engine %s lacks something: %+v", s.name, s)
		}
		if other := records[s.record]; s.record != 0 && other != "" {
			t.Errorf("engines %s and %s have the same records", s.name, other)
		}
		records[s.record] = s.name
	}
}

// The runtime whose VMs the engine hotspot estimates is in the table of runtimes.
func TestHotspotRuntime(t *testing.T) {
	if !slices.ContainsFunc(runtimes.Table(), func(r bridge.Runtime) bool { return r.Name() == hotspot.Runtime }) {
		t.Errorf("the table of runtimes has none of the name %s", hotspot.Runtime)
	}
}

// Doctor checks the socket for engines that are marked so.
func TestSocketEngines(t *testing.T) {
	for _, s := range engineTable(Options{GuestSocket: "/run/guests"}) {
		if named := strings.Contains(s.purpose, "/run/guests"); named != s.socket {
			t.Errorf("%s is for guests that connect (%s), marked %t", s.name, s.purpose, s.socket)
		}
	}
}

// Which engines are tried: all but experimental ones, or only the selected one.
func TestDeclinedEngines(t *testing.T) {
	for _, test := range []struct {
		engine       string
		want         []string
		interrupting bool
	}{
		{"", []string{calls.Page, calls.Hotspot, calls.Listener, calls.USDT}, false},
		{calls.Auto, []string{calls.Page, calls.Hotspot, calls.Listener, calls.USDT}, false},
		{calls.USDT, []string{calls.USDT}, false},
		{calls.Branch, []string{calls.Branch}, true},
	} {
		o := Options{Engine: test.engine}
		var tried []string
		for _, s := range engineTable(o) {
			if s.declined(o) == "" {
				tried = append(tried, s.name)
			}
		}
		if got := o.Interrupting(); !slices.Equal(tried, test.want) || got != test.interrupting {
			t.Errorf("with --engine=%s these are tried: %v, interrupting: %t; want %v, %t", test.engine, tried, got,
				test.want, test.interrupting)
		}
	}
	if o := (&Options{Engine: calls.Branch, Exact: ExactEdges}); o.Interrupting() || (*Options)(nil).Interrupting() {
		t.Error("where no calls are sampled an engine interrupts")
	}
}

// A foldingEngine names the calls of records, except those of callee 0. It hands out a held one
// when it is flushed.
type foldingEngine struct {
	fakeEngine
	held bpf.Header
}

func (f *foldingEngine) Fold(c *bpf.Call, add calls.Add) bool {
	if c.Callee != 0 {
		add(&c.Header, profile.Edge{}, 3)
	}
	return c.Callee != 0
}

func (f *foldingEngine) Held() int                    { return 0 }
func (f *foldingEngine) Flush(add calls.Add)          { add(&f.held, profile.Edge{}, 4) }
func (f *foldingEngine) Unweighed() map[string]uint64 { return map[string]uint64{discardTime: 7} }

// A foldingNamed does the same with records that carry names.
type foldingNamed struct{ fakeEngine }

func (foldingNamed) Fold(c *bpf.NamedCall, add calls.Add) bool {
	if c.CalleeName[0] != 0 {
		add(&c.Header, profile.Edge{}, 5)
	}
	return c.CalleeName[0] != 0
}

// Records go to the engine that they belong to, and its named calls are folded. Other records are
// malformed.
func TestRecordsOfEngines(t *testing.T) {
	e, w := testEngines()
	s := e.state()
	h := identity{PID: 100, Start: 5, Exec: 1}.Header(bpf.EventCall)
	for name, engine := range map[string]calls.Engine{
		calls.Page: &foldingEngine{fakeEngine{name: calls.Page}, h},
		calls.USDT: foldingNamed{fakeEngine{name: calls.USDT}}, calls.Hotspot: fakeEngine{name: calls.Hotspot},
	} {
		e.run(specOf(Options{}, name), started{engine: engine})
	}
	e.onCall(s, &bpf.Call{Header: h, Engine: bpf.EnginePage, Callee: 1})
	e.onCall(s, &bpf.Call{Header: h, Engine: bpf.EnginePage})           // has no name
	e.onCall(s, &bpf.Call{Header: h, Callee: 1})                        // belongs to no engine
	e.onCall(s, &bpf.Call{Header: h, Engine: bpf.EngineUSDT})           // those bring names
	e.onCall(s, &bpf.Call{Header: h, Engine: bpf.EngineBranch})         // does not run
	e.onNamedCall(s, &bpf.NamedCall{Header: h, Engine: bpf.EnginePage}) // those bring none
	e.onNamedCall(s, &bpf.NamedCall{Header: h, Engine: bpf.EngineUSDT})
	named := &bpf.NamedCall{Header: h, Engine: bpf.EngineUSDT}
	named.CalleeName[0] = 'f'
	e.onNamedCall(s, named)
	e.Flush(s)
	for why, n := range e.stats(&bpf.Counts{}).Discarded {
		if want := map[string]uint64{profile.Malformed: 4, discardUnnamed: 2, discardTime: 7}[why]; n != want {
			t.Errorf("%s: %d, want %d", why, n, want)
		}
	}
	set := w.Calls[s.Table[100]]
	if set == nil || len(set.Named) != 2 || set.Named[calls.Page].Total() != 7 || set.Named[calls.USDT].Total() != 5 ||
		e.counts.folded != 3 {
		t.Errorf("%d are folded, into %+v", e.counts.folded, set)
	}
}
