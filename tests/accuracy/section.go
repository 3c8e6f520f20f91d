package main

import (
	"context"
	"reflect"
	"regexp"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A section is one of the things that are measured. It has the trials that the options ask for, possibly none, runs them
// once, and then has tables and a verdict.
type section interface {
	// run makes the trials one after the other, and prints what came of each.
	run(ctx context.Context, m meter) error
	// tables are the section's part of the documentation.
	tables() []namedTable
	// ok says that nothing is further from the truth than its tolerance. An aim that is missed is no error: tables say it.
	ok() bool
}

// A namedTable stands in the documentation between the markers of that name.
type namedTable struct {
	name string
	report.Table
}

// plan returns all sections, in the order of the documentation, each with the trials that the options ask for.
func plan(jdks []jvm.JDK, o options) []section {
	sections := []section{
		&shares{trials: planShares(jdks, o)},
		&beside{trials: planBeside(jdks, o)},
		&completeness{trials: planCompleteness(jdks, o)},
		&virtuals{trials: planVirtuals(o)},
		&adversary{trials: planAdversary(o)},
		planVMRates(o),
		planPHPRates(o),
		&budget{trials: planBudget(o)},
		planHotspotCalls(jdks, o),
		planHotspotPhases(jdks, o),
		planHotspotUnchecked(jdks, o),
	}
	sections = append(sections, planContexts(jdks, o)...)
	sections = append(sections, &allocations{trials: planAllocations(jdks, o)}, &totals{trials: planTotals(jdks, o)})
	return append(sections, planKnown(jdks, o)...)
}

// entire returns the sections that have all of their trials, before they run. The tables of others are not for the
// documentation.
func entire(sections []section, jdks []jvm.JDK) (entire []section) {
	for i, s := range plan(jdks, options{run: regexp.MustCompile("")}) {
		if reflect.DeepEqual(s, sections[i]) {
			entire = append(entire, sections[i])
		}
	}
	return entire
}

// update rewrites the tables in the documentation.
func update(sections []section) error {
	for _, s := range sections {
		for _, t := range s.tables() {
			if err := report.Update(docs, t.name, t.Markdown()); err != nil {
				return err
			}
		}
	}
	return nil
}
