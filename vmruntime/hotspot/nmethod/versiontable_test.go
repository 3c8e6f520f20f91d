package nmethod

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

func TestVersionTable(t *testing.T) {
	var table VersionTable
	main := methodinfo.Identity{Class: "app/Main", Name: "run", Signature: "()V"}
	table.add(7, namedCode{0x1000, 0x100, vmruntime.TierC2, main})
	for pc, want := range map[uint64]bool{0xfff: false, 0x1000: true, 0x10ff: true, 0x1200: true, 0x2100: false} {
		if _, ok := table.Find(7, pc); ok != want {
			t.Errorf("pc %#x: %v, want %v", pc, ok, want)
		}
	}
	if _, ok := table.Find(8, 0x1000); ok {
		t.Error("another version was found there")
	}
	c, _ := table.Find(7, 0x1000)
	want := vmruntime.Frame{Function: "app.Main.run", Signature: "()V", BCI: -1, Tier: vmruntime.TierC2,
		Approximate: true}
	if got := c.frame(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestVersionTableBound(t *testing.T) {
	var table VersionTable
	const extra = 10
	for i := range uint32(maxVersions + extra) {
		name := methodinfo.Identity{Class: "app/Main", Name: fmt.Sprintf("a method with a long name, number %d", i),
			Signature: "()V"}
		table.add(i, namedCode{begin: 0x1000, size: 1, Identity: name})
		table.add(i, namedCode{begin: 0x2000, size: 1, Identity: name}) // announced again: not a second one
	}
	if len(table.known) != maxVersions || len(table.order) != maxVersions || table.dropped != extra {
		t.Errorf("%d kept, %d in order, %d dropped", len(table.known), len(table.order), table.dropped)
	}
	if _, ok := table.Find(extra-1, 0x2000); ok {
		t.Error("the oldest is still there")
	}
	if _, ok := table.Find(extra, 0x2000); !ok {
		t.Error("one that should be there is gone")
	}
}

// TestVersionTableNames: names of what was forgotten do not pile up.
func TestVersionTableNames(t *testing.T) {
	var table VersionTable
	largest := 0
	for i := range uint32(4 * maxVersions) {
		name := fmt.Sprintf("%d%s", i, strings.Repeat("x", 50))
		method := methodinfo.Identity{Class: "C", Name: name, Signature: "()V"}
		table.add(i, namedCode{begin: 0x1000, size: 1, Identity: method})
		largest = max(largest, len(table.names.text))
	}
	const each = 60 // bytes of one name
	if limit := 2*maxVersions*each + 1<<20; largest > limit {
		t.Errorf("%d bytes of names, want at most %d", largest, limit)
	}
	c, ok := table.Find(4*maxVersions-1, 0x1000)
	if want := fmt.Sprint(4*maxVersions-1) + strings.Repeat("x", 50); !ok || c.Name != want || c.Class != "C" {
		t.Errorf("%+v, want %s", c, want)
	}
}

func TestNameTable(t *testing.T) {
	var table nameTable
	refs := make(map[string]nameRef)
	for i := range 5000 {
		s := fmt.Sprint(i % 1000)
		ref := table.add(s)
		if before, ok := refs[s]; ok && before != ref {
			t.Fatalf("%s is at %d and %d", s, before, ref)
		}
		refs[s] = ref
	}
	for _, s := range []string{"", strings.Repeat("y", vmstructs.MaxNameBytes), "\x00"} {
		refs[s] = table.add(s)
	}
	for s, ref := range refs {
		if got := table.get(ref); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	}
	if table.count != 1003 {
		t.Errorf("%d strings, want 1003", table.count)
	}
}
