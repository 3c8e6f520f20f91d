package main

import (
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A plan is the measurements of a section: harness.Trials' Plan.
type plan = func(harness.Choice) harness.Job[meter]

// sections are all measurements, in the order of the documentation. Tables show which aims are
// missed; only what the plans call an error fails.
func sections(jdks []jvm.JDK) []harness.Section[meter] {
	section := func(name, aim string, p plan, more ...string) harness.Section[meter] {
		return harness.Section[meter]{Name: name, Markers: append([]string{name}, more...), Aim: aim, Plan: p}
	}
	// detailed sections print a table for each trial.
	detailed := func(name, aim string, p plan) harness.Section[meter] {
		s := section(name, aim, p)
		s.Detailed = true
		return s
	}
	return []harness.Section[meter]{
		section("programs", "none", planPrograms(jdks[0])),
		detailed("shares", "each share within 1 % and chance; 99.5 % of the stacks whole", planShares(jdks)),
		detailed("clock", "shares as in table shares, of samples at the kernel's own tick", planClock(jdks)),
		section("beside", "shares as in table shares, 1 % of wrong names", planBeside(jdks)),
		detailed("completeness", "99.5 % of the stacks whole", planCompleteness(jdks)),
		detailed("virtuals", "99 % of the stacks whole; the others say why", planVirtuals()),
		section("adversary", "bursts within 5 %, the timer off by 25 % or more", planAdversary()),
		section("rates-vm", "none", planRates("rates-vm", "page", guests.VMPrograms(), "virtual"), "rates-vm-programs"),
		section("rates-php", "none", planRates("rates-php", "usdt", []string{parser}, parser)),
		section("budget", "95 % overlap for 1 % of the CPU time", planBudget()),
		section("calls-soon", "none", planSoon()),
		section("exact-trees", "overlap of two runs above 99 %", planTrees(jdks[0]), "exact-layers"),
		section("hotspot-calls", "closer than the timer; 85 % of calls made, 75 % of logical ones",
			hotspotCalls(jdks).plan()),
		section("hotspot-phases", "closer than the timer; 95 % in code that counts, 80 % from the start",
			hotspotPhases(jdks).plan()),
		section("hotspot-unchecked", "75 % of logical calls", hotspotUnchecked(jdks).plan()),
		section("calls-shapes", "95 % of the intervals contain the number of calls", planShapes(jdks)),
		section("contexts-chain", "first caller right in 95 %, three in 90 %, of five programs in seven",
			planContexts(chainStudy, jdks[0]),
			"contexts-aims", "contexts-table1"),
		section("contexts-every", "first caller right in 95 %", planContexts(everyStudy, jdks[0])),
		section("contexts-partial", "first caller right in 95 %", planContexts(partialStudy, jdks[0])),
		section("contexts-precision", "none", planContexts(precisionStudy, jdks[0])),
		section("contexts-runs", "none", planRuns(jdks[0])),
		section("alloc", "2 points below what chance allows", planAllocations(jdks), "alloc-classes", "alloc-buffers"),
		section("events-totals", "95 % of the totals within their intervals", planTotals(jdks)),
		detailed("events-sites", "exact counts exact, samples within chance", planKnown(allocStudy, jdks)),
		detailed("events-locks", "delays within 5 %, of the right class", planKnown(lockStudy, jdks)),
		detailed("events-waits", "each way within 5 % and chance, for the right cause", planWaits(jdks)),
		section("events-alloc-rows", "totals within 1 %, 95 % of the intervals contain the truth", planAllocRows(jdks)),
		section("events-wait-rows", "95 % of the intervals contain the truth", planWaitRows(jdks)),
		detailed("events-enters", "shares within 10 %", planKnown(enterStudy, jdks)),
		detailed("events-pauses", "time stopped within 1 %", planKnown(pauseStudy, jdks)),
		detailed("events-faults", "faults within 10 %, of the right class", planKnown(faultStudy, jdks)),
		detailed("events-values", "every execution, or shares within chance", planKnown(valueStudy, jdks)),
	}
}
