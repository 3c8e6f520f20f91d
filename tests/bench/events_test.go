package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

func TestChooseKinds(t *testing.T) {
	o, err := parse([]string{"-kinds", "value-flood,alloc"})
	if err != nil || len(o.kinds) != 2 || o.kinds[0].name != "alloc" || o.kinds[1].name != "value-flood" {
		t.Errorf("got %v, %v", o.kinds, err)
	}
	if all, err := parse([]string{"-kinds", harness.List(eventKinds, eventKindName)}); err != nil ||
		len(all.kinds) != len(eventKinds) {
		t.Errorf("all kinds are %v, %v", all.kinds, err)
	}
	if _, err := parse([]string{"-kinds", "alloc,cpi"}); err == nil ||
		err.Error() != `-kinds: there is no kind of events "cpi": choose from `+harness.List(eventKinds,
			eventKindName) {
		t.Errorf("cpi: %v", err)
	}
}

func TestKindsOf(t *testing.T) {
	if all := kindsOf("Xalan", eventKinds); len(all) != len(eventKinds) {
		t.Errorf("of a program of the suite %v are recorded", all)
	}
	for name := range lockers {
		if locks := kindsOf(name, eventKinds); len(locks) != 2 || locks[0].name != "lock" ||
			locks[1].name != "monitor-enters" {
			t.Errorf("of %s %v are recorded", name, locks)
		}
	}
}

// The probes of values are written as users would write them.
func TestEventProbes(t *testing.T) {
	probes := 0
	for _, k := range eventKinds {
		if k.flags[1] != "value" {
			continue
		}
		probes++
		if spec, err := valueprobe.Parse(k.flags[3]); err != nil || len(spec.Values) != 1 || spec.Every != 0 {
			t.Errorf("%s: got %+v, %v, want one value as often as the budget allows", k.name, spec, err)
		}
	}
	if probes < 2 {
		t.Errorf("values are read at %d probes", probes)
	}
}
