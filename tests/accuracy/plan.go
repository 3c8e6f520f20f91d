package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A trial is one guest to profile.
type trial struct {
	program guests.Program
	flavour guests.Flavour
	jdk     jvm.JDK
}

// String is the trial's name: what -run is matched with, and the head of its table.
func (t trial) String() string {
	return fmt.Sprintf("%s, %s, %v", t.program.Name, t.flavour.Name, t.jdk)
}

// planShares returns the trials that the options ask for.
func planShares(jdks []jvm.JDK, o options) []trial {
	var trials []trial
	for _, jdk := range jdks {
		for _, program := range guests.Programs() {
			for _, flavour := range guests.Flavours() {
				t := trial{program: program, flavour: flavour, jdk: jdk}
				wanted := program.Runs(flavour, jdk.Version) && o.run.MatchString(t.String())
				if wanted && (!o.short || t.short(jdks)) {
					trials = append(trials, t)
				}
			}
		}
	}
	return trials
}

// shortFlavours are what the short form runs besides the default flavour: each a way of finding the next frame that
// the default flavour hardly meets.
var shortFlavours = map[string][]string{
	"Plain":     {"interpreter"},
	"Inlined":   {"C1, debug info", "C2, debug info"},
	"Recursive": {"interpreter", "C1"},
	"Deopt":     {"C2"},
}

// short says whether the trial is in the short form: on the oldest JDK, or on the newest for what only that one has.
func (t trial) short(jdks []jvm.JDK) bool {
	oldest, newest := jdks[0], jdks[len(jdks)-1]
	if t.program.MinJDK > oldest.Version {
		return t.jdk == newest && t.flavour.Name == "default"
	}
	if t.jdk != oldest {
		return false
	}
	if t.flavour.Name == "default" {
		return true
	}
	for _, name := range shortFlavours[t.program.Name] {
		if name == t.flavour.Name {
			return true
		}
	}
	return false
}
