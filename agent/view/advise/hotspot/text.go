package hotspot

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// maxCalls bounds the calls of one piece of advice that are shown.
const maxCalls = 4

// A Form is a file that HotSpot takes.
type Form uint8

const (
	DirectivesFile Form = iota
	CommandFile
)

// flags load a file of the form.
func (f Form) flags(file string) []string {
	if f == CommandFile {
		return []string{"-XX:CompileCommandFile=" + file}
	}
	return []string{"-XX:+UnlockDiagnosticVMOptions", "-XX:CompilerDirectivesFile=" + file}
}

// WriteText writes the advice for people. The file is where the part of it that HotSpot reads is,
// or may be.
func (p *Plan) WriteText(w io.Writer, form Form, file string) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s for %s[%d], from %.1f s", pieces(len(p.Advice)), p.Comm, p.PID, p.Seconds)
	if p.CPU > 0 {
		fmt.Fprintf(out, " with %.2f CPUs busy", p.CPU)
	}
	fmt.Fprintln(out)
	for i := range p.Advice {
		fmt.Fprintf(out, "\n%d. ", i+1)
		p.Advice[i].write(out)
	}
	if len(p.Advice) == 0 {
		fmt.Fprintf(out, "no limit of the inliner keeps a call from being inlined that may save %.0f %% of the CPU "+
			"time or more\n", 100*leastGain)
	} else {
		flags := p.Flags()
		if p.HasMethods() {
			flags = append(form.flags(file), flags...)
		}
		fmt.Fprintf(out, "\nNothing was changed. Start one process with\n  java %s ...\n", strings.Join(flags, " "))
		fmt.Fprint(out, "Record it and one without, at the same time: vmprof-agent record --window=1 -d 60\n")
	}
	if p.Others > 0 {
		fmt.Fprintf(out, "note: the profile has %s more; select one with -p\n", stored.Plural(p.Others, "JVM"))
	}
	for _, note := range p.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write advice: %w", err)
	}
	return nil
}

func pieces(n int) string {
	if n == 0 {
		return "no advice"
	}
	return stored.Plural(n, "piece") + " of advice"
}

// write writes one piece of advice.
func (a *Advice) write(out *bufio.Writer) {
	switch a.Kind {
	case Inline:
		fmt.Fprintf(out, "inline %s into %s\n", display(a.Callee), displayed(a.Into))
	case DontInline:
		fmt.Fprintf(out, "do not inline %s into %s\n", display(a.Callee), displayed(a.Into))
	case Guard:
		fmt.Fprintf(out, "-XX:TypeProfileMajorReceiverPercent=%d, for the whole JVM\n", a.Percent)
	}
	fmt.Fprintf(out, "   because %s\n", a.Reason)
	for i, c := range a.Calls {
		if i == maxCalls {
			fmt.Fprintf(out, "   %s\n", stored.Plural(len(a.Calls)-maxCalls, "more call site"))
			break
		}
		c.write(out, a.Kind)
	}
	if a.Entering > 0 {
		fmt.Fprintf(out, "   prologues and epilogues: %.1f %% of the CPU time\n", 100*a.Entering)
	}
	switch {
	case a.Kind == DontInline:
		fmt.Fprint(out, "   expected: nothing by itself; it makes room for the methods to inline there\n")
	case math.IsNaN(a.AtMost):
		fmt.Fprint(out, "   expected: unknown\n")
	default:
		fmt.Fprintf(out, "   expected: at most %.1f %% less CPU time\n", 100*a.AtMost)
	}
	// The units of work are the only honest denominator: calls that were inlined are no longer
	// there to be counted.
	fmt.Fprint(out, "   verify:   vmprof-agent compare --per=REQUESTS:REQUESTS before.pb.gz canary.pb.gz\n")
}

func (c *Calls) write(out *bufio.Writer, kind Kind) {
	place := c.Caller
	if c.Site.Line > 0 {
		place += fmt.Sprintf(":%d", c.Site.Line)
	}
	if c.Several && c.Site.Offset >= 0 {
		place += fmt.Sprintf("@%d", c.Site.Offset)
	}
	fmt.Fprintf(out, "   %s -> %s\n", place, display(c.Callee))
	if c.Unmeasured {
		fmt.Fprintf(out, "     number of calls unknown, between %s and %s a second", stored.ThreeDigits(c.Low),
			stored.ThreeDigits(c.High))
	} else {
		fmt.Fprintf(out, "     %s calls/s", stored.ThreeDigits(c.Rate))
		if c.High > c.Low {
			fmt.Fprintf(out, " (95 %%: %s-%s)", stored.ThreeDigits(c.Low), stored.ThreeDigits(c.High))
		}
		fmt.Fprintf(out, ", %.1f %% of all calls", 100*c.Of)
	}
	if kind == Guard {
		fmt.Fprintf(out, "\n     %.0f %% of the calls from here", 100*c.Target)
		if c.Counted {
			fmt.Fprint(out, " by the JVM's own counts")
		}
		fmt.Fprintf(out, ", with %d or more targets", c.Targets)
	}
	if c.Time > 0 {
		fmt.Fprintf(out, "; %.1f ns of CPU time a call in it", 1e9*c.Time)
	}
	fmt.Fprintln(out)
}

// displayed lists methods for people.
func displayed(systemNames []string) string {
	const most = 3
	var names []string
	for _, s := range systemNames[:min(len(systemNames), most)] {
		names = append(names, display(s))
	}
	text := strings.Join(names, ", ")
	if more := len(systemNames) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
