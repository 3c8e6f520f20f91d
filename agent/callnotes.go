package agent

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// notes are what readers of a profile must know of engines, one sentence each. Of an engine that runs and has no calls in
// it they say why, as far as that is known. failed is of how many JVMs there is no estimate although there should be.
func (e *callEngines) notes(p *profile.Profile, failed int) (notes []string) {
	rates, jvms := map[string]profile.Rate{}, 0
	for _, process := range p.Processes {
		for _, c := range process.Calls {
			rates[c.Engine] = c.Rate
		}
		if process.Runtime == "hotspot" {
			jvms++
		}
	}
	var own []string
	if e.usdt != nil {
		own = e.usdt.Notes()
	}
	if e.branch != nil {
		own = append(own, e.branch.Notes()...)
	}
	e.agent.mu.Lock()
	defer e.agent.mu.Unlock()
	for _, c := range e.choices {
		note := c.String()
		rate, delivered := rates[c.Engine]
		switch {
		case c.Chosen && !delivered:
			note += "; no calls: " + e.silence(c.Engine, jvms, failed)
		case rate != (profile.Rate{}) && !e.opt.unlimited(c.Engine):
			note += "; its rate follows from the budget, and the labels stride and samples are those of the last one"
		}
		notes = append(notes, note)
	}
	notes = append(notes, own...)
	for _, g := range e.governed {
		if note := g.note(e.opt); note != "" {
			notes = append(notes, note)
		}
	}
	return append(notes, e.unused()...)
}

// silence is why an engine that runs has no calls in a profile with so many JVMs, of so many of which the estimate failed;
// agent.mu is held.
func (e *callEngines) silence(engine string, jvms, failed int) string {
	switch engine {
	case "page":
		if n := len(e.pages); n > 0 {
			return fmt.Sprintf("guests are connected (%d), and no burst met a call of theirs", n)
		}
		if e.page != nil && e.page.Stats().Accepted > 0 {
			return "no guest is connected any more"
		}
		return "no guest has connected"
	case "usdt":
		if n := len(e.probed); n > 0 {
			return fmt.Sprintf("it samples %d processes, and no window met a call of theirs", n)
		}
		return "no interpreter that it can sample is running"
	case "hotspot":
		if failed > 0 {
			return fmt.Sprintf("of %d JVMs, the estimate failed for %d", jvms, failed)
		}
		if jvms > 0 {
			return fmt.Sprintf("of %d JVMs none was busy enough", jvms)
		}
		return "no JVM was busy"
	case "listener":
		n := 0
		for _, p := range e.agent.table {
			if e.listensTo(p) {
				n++
			}
		}
		switch {
		case n > 0:
			return fmt.Sprintf("of %d processes whose compiled code it knows none was busy enough", n)
		case e.estimator == nil:
			return "no JVM was busy, and nothing else whose VM writes a map for perf"
		}
		return "nothing was busy whose VM writes a map for perf"
	}
	return "nobody made one while it sampled"
}

// note tells of an engine that can only sample now and then; "" for others. agent.mu is held.
func (g *governed) note(o CallOptions) string {
	if !g.exceeds {
		return ""
	}
	why, remedy := fmt.Sprintf("the budget of %g%% has no room for more", 100*o.Budget), "raise --budget"
	if o.Rate != (profile.Rate{}) {
		why = fmt.Sprintf("what -F, --stride and --samples fix costs more than the budget of %g%%", 100*o.Budget)
		remedy += ", or give all of them to do without one"
	}
	return fmt.Sprintf("engine %s: sampled in %d of %d s only: %s: %s", g.Name(), g.sampled, g.all, why, remedy)
}

// unused are the options that do not apply to some of the engines that run. Where they apply to none, options are
// refused before.
func (e *callEngines) unused() (notes []string) {
	stride, samples := e.opt.Rate.Stride > 0, e.opt.Rate.Samples > 0
	for _, engine := range e.running {
		switch name := engine.Name(); {
		case name == "hotspot" && (stride || samples):
			notes = append(notes, "engine hotspot: --stride and --samples do not apply: it listens in windows that follow from the budget")
		case name == "listener" && stride:
			notes = append(notes, "engine listener: --stride does not apply: every call of a burst traps")
		}
	}
	if e.opt.Logical && e.estimator == nil {
		notes = append(notes, "--logical does not apply: of calls that were inlined only engine hotspot knows, which is not used")
	}
	return notes
}
