package guest

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// What was read of a process when it ran another program already is not its own. A name by mappings
// that were read before stays.
func TestDisown(t *testing.T) {
	rs, p, _ := fakeVM(t, nil)
	frame := func(pc uint64, end bpf.WalkEnd) RawFrame {
		return RawFrame{Frame: bpf.Frame(uint64(bpf.FrameNative)<<60 | pc), Kind: RawExact, End: end}
	}
	name := func(function string, asOf time.Duration) Name {
		return Name{Symbols: []symbol.Symbol{symbol.Intern(symbol.Frame{Function: function})}, asOf: asOf}
	}
	const replaced = 10 * time.Second
	own, others, outermost := frame(0x1000, 0), frame(0x2000, 0), frame(0x2000, bpf.EndPointer)
	tell := func() {
		p.SetName(own, name("alpha", replaced-time.Second))
		p.SetName(others, name("beta", replaced+time.Second))
		p.SetName(outermost, name("beta", replaced+time.Second))
		p.task, p.executable.File, p.workload, p.work.identified = "beta", "/bin/beta",
			proc.Workload{Unit: "beta.service"}, replaced+time.Second
	}
	function := func(r RawFrame) string {
		names := p.Names()
		defer names.Close()
		return names.Lookup(r).Symbols[0].Value().Function
	}
	tell()
	p.Exited.Store(true)
	if rs.disown(p); function(others) != "beta" || p.Describe().Comm != "beta" {
		t.Error("a process that has ended loses its names")
	}
	p.Replaced(replaced)
	rs.disown(p)
	for r, want := range map[RawFrame]string{own: "alpha", others: symbol.Unknown, outermost: symbol.Unknown} {
		if got := function(r); got != want {
			t.Errorf("%v is %s, want %s", r, got, want)
		}
	}
	if d, w := p.Describe(), p.Workload(); d.Comm != "" || d.Executable.File != "" || w.Unit != "" {
		t.Errorf("the process is %+v, %+v", d, w)
	}
	tell()
	if p.Called([]byte("alpha\x00")); p.Describe().Comm != "alpha" {
		t.Error("a record has its name")
	}
	if rs.disown(p); p.Describe().Comm != "alpha" {
		t.Error("the name of a record is lost")
	}
}
