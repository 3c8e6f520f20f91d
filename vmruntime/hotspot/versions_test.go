package hotspot

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

func TestVersionTable(t *testing.T) {
	var table versionTable
	name := newMethodName("app/Main", "run", "()V")
	table.add(7, namedCode{begin: 0x1000, size: 0x100, tier: vmruntime.TierC2, name: name})
	for pc, want := range map[uint64]bool{0xfff: false, 0x1000: true, 0x10ff: true, 0x1200: true, 0x2100: false} {
		if _, ok := table.find(7, pc); ok != want {
			t.Errorf("pc %#x: %v, want %v", pc, ok, want)
		}
	}
	if _, ok := table.find(8, 0x1000); ok {
		t.Error("another version was found there")
	}
	c, _ := table.find(7, 0x1000)
	want := vmruntime.Frame{Function: "app.Main.run", Signature: "()V", BCI: -1, Tier: vmruntime.TierC2, Approximate: true}
	if got := c.frame(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestVersionTableBound(t *testing.T) {
	var table versionTable
	const extra = 10
	for i := range uint32(maxVersions + extra) {
		table.add(i, namedCode{begin: 0x1000, size: 1})
		table.add(i, namedCode{begin: 0x2000, size: 1}) // announced again: not a second one
	}
	if len(table.named) != maxVersions || len(table.order) != maxVersions || table.dropped != extra {
		t.Errorf("%d kept, %d in order, %d dropped", len(table.named), len(table.order), table.dropped)
	}
	if _, ok := table.find(extra-1, 0x2000); ok {
		t.Error("the oldest is still there")
	}
	if _, ok := table.find(extra, 0x2000); !ok {
		t.Error("one that should be there is gone")
	}
}
