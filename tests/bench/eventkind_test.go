package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/valueprobe"
)

func TestChooseKinds(t *testing.T) {
	kinds, err := chooseKinds("value-flood,alloc")
	if err != nil || len(kinds) != 2 || kinds[0].name != "alloc" || kinds[1].name != "value-flood" {
		t.Errorf("got %v, %v", kinds, err)
	}
	if all, err := chooseKinds(eventKindNames()); err != nil || len(all) != len(eventKinds) {
		t.Errorf("all kinds are %v, %v", all, err)
	}
	if _, err := chooseKinds("alloc,cpi"); err == nil {
		t.Error("cpi was accepted")
	}
}

func TestKindsOf(t *testing.T) {
	if all := kindsOf("Xalan", eventKinds); len(all) != len(eventKinds) {
		t.Errorf("of a program of the suite %v are recorded", all)
	}
	for name := range lockers {
		if locks := kindsOf(name, eventKinds); len(locks) != 2 || locks[0].name != "lock" || locks[1].name != "monitor-enters" {
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
