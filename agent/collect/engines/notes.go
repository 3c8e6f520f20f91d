package engines

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// notes are what readers of a profile must know about engines, one sentence each. For a running
// engine without calls in it they say why, as far as known. failed is the number of JVMs whose
// estimate failed.
func (e *Engines) notes(p *profile.Profile, failed int) (notes []string) {
	rates, jvms := map[string]profile.Rate{}, 0
	for _, process := range p.Processes {
		for _, c := range process.Calls {
			rates[c.Engine] = c.Rate
		}
		if process.Runtime == hotspot.Runtime {
			jvms++
		}
	}
	var own []string
	for _, engine := range e.running {
		own = append(own, engine.Notes()...)
		if watching, ok := engine.Engine.(calls.Watching); ok {
			watches := watching.Watches()
			if losses := watches.Losses(); losses != "" {
				own = append(own, fmt.Sprintf("engine %s, since the agent began: %s", engine.Name(), losses))
			}
		}
	}
	e.Owner.Do(func(s *fold.State) {
		notes = append(e.choiceNotes(s, rates, jvms, failed), own...)
		for _, g := range e.governed {
			if note := g.note(e.opt); note != "" {
				notes = append(notes, note)
			}
		}
	})
	return append(notes, e.unused()...)
}

// choiceNotes are notes on why engines run or not, and why they have no calls in a profile with
// these rates.
func (e *Engines) choiceNotes(s *fold.State, rates map[string]profile.Rate, jvms, failed int) (notes []string) {
	for _, c := range e.choices {
		note := c.String()
		rate, delivered := rates[c.Engine]
		switch engine := e.engine(c.Engine); {
		case engine == nil:
		case !delivered:
			note += "; no calls: " + engine.silence(engine, s, jvms, failed)
		case rate != (profile.Rate{}) && !engine.Unlimited(e.opt.Rate):
			note += "; the budget determines its rate; the labels stride and samples show the last one"
		}
		notes = append(notes, note)
	}
	return notes
}

// notBusy says that there are so many things, and none was busy.
func notBusy(n int, thing, with string) string {
	if n == 1 {
		return "the only " + thing + with + " was not busy enough"
	}
	return "none of " + stored.Plural(n, thing) + with + " was busy enough"
}

// Why engines that run have no calls in a profile: see engineSpec.silence.

func silenceOfPage(own *engine, _ *fold.State, _, _ int) string {
	if n := len(own.connected); n > 0 {
		return stored.Plural(n, "process") + " connected, but no burst sampled a call there"
	}
	if connector, ok := own.Engine.(calls.Connector); ok && connector.EverConnected() {
		return "no process is connected any more"
	}
	return "no process has connected"
}

func silenceOfUSDT(own *engine, _ *fold.State, _, _ int) string {
	if n := len(own.found); n > 0 {
		return stored.Plural(n, "sampled process") + ", but no burst sampled a call there"
	}
	return "no supported interpreter is running"
}

func silenceOfHotspot(_ *engine, _ *fold.State, jvms, failed int) string {
	if failed > 0 {
		return fmt.Sprintf("the estimate failed for %d of %s", failed, stored.Plural(jvms, "JVM"))
	}
	if jvms > 0 {
		return notBusy(jvms, "JVM", "")
	}
	return "no JVM was busy"
}

func silenceOfListener(own *engine, s *fold.State, _, _ int) string {
	n := 0
	for _, p := range s.Table {
		if own.isObserved(s, p) {
			n++
		}
	}
	switch {
	case n > 0:
		return notBusy(n, "process", " with known compiled code")
	case own.engines.estimator == nil:
		return "no JVM was busy, and no other VM that writes a map for perf"
	}
	return "no VM that writes a map for perf was busy"
}

func silenceOfBranch(*engine, *fold.State, int, int) string {
	return "no call was made while it sampled"
}

// note says that the budget lets an engine sample only part of the time, and why; "" if the engine
// samples all the time.
func (g *governed) note(o Options) string {
	if !g.exceeds {
		return ""
	}
	why, remedy := fmt.Sprintf("the budget of %g%% has no room for more", 100*o.Budget), "raise --budget"
	if o.Rate != (profile.Rate{}) {
		why = fmt.Sprintf("the fixed -F, --stride and --samples cost more than the budget of %g%%", 100*o.Budget)
		remedy += ", or set all three to sample without a budget"
	}
	return fmt.Sprintf("engine %s: sampled in %d of %d s only: %s: %s", g.Name(), g.sampled, g.all, why, remedy)
}

// unused lists the options that do not apply to some of the running engines. Options that apply to
// none are refused before.
func (e *Engines) unused() (notes []string) {
	stride, samples := e.opt.Rate.Stride > 0, e.opt.Rate.Samples > 0
	for _, engine := range e.running {
		switch {
		case engine.SelfGoverned && (stride || samples):
			notes = append(notes, fmt.Sprintf("engine %s: --stride and --samples do not apply: the budget determines "+
				"its watches", engine.Name()))
		case engine.Stride == calls.EveryCall && stride:
			notes = append(notes, fmt.Sprintf("engine %s: --stride does not apply: every call of a burst traps",
				engine.Name()))
		}
	}
	if e.opt.Logical && !slices.ContainsFunc(e.running, func(engine *engine) bool { return engine.Inlined }) {
		notes = append(notes, "--logical does not apply: only engine "+strings.Join(inlining(), " or ")+
			" estimates inlined calls, and it is not used")
	}
	return notes
}
