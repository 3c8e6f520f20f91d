package hotspot

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	guests "github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

var document = flag.Bool("document", false, "measure at length, and rewrite the table in docs/measurements/inlined-methods.md")

// An attribution counts samples in compiled code by what their leaf is named without
// DebugNonSafepoints, by what the VM recorded with it.
type attribution struct {
	samples int // samples of which the VM recorded where they are
	exact   int // the leaf is the method
	within  int // the leaf is [inlined in M], and M is the method or something that it was inlined into
	wrong   int
	depth   int // inlined frames that are missing, of those within
	nearest int // wrong, if the next position counted
	silent  int // besides samples: of which the VM did not record where they are, though it was asked to
}

// TestAttribution compares leaves that are named without DebugNonSafepoints with those that are
// named with it, of the same samples of the same program.
func TestAttribution(t *testing.T) {
	installed, err := guests.Find(guests.Root)
	if err != nil || len(installed) == 0 {
		unavailable(t, fmt.Sprintf("JDKs: %v", err))
	}
	const enough = 1000 // samples of a program
	programs, warmUp := []string{"Jython"}, 4*time.Second
	if !*document {
		installed = installed[:1]
	} else {
		programs, warmUp = nil, 3*warmUp
		for _, p := range suite.Programs() {
			programs = append(programs, p.Name)
		}
	}
	table := report.Table{Header: []string{"program", "JDK", "samples", "named exactly", "`[inlined in M]`",
		"missing frames", "wrong",
		"next record: wrong", "not recorded with the flag"}}
	for _, jdk := range installed {
		for _, name := range programs {
			t.Run(fmt.Sprintf("%s/%d", name, jdk.Version), func(t *testing.T) {
				a := measureAttribution(t, jdk, name, warmUp, enough)
				t.Logf("%+v", a)
				of := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(a.samples)) }
				table.Add(name, jdk.Release, fmt.Sprint(a.samples), of(a.exact), of(a.within),
					fmt.Sprintf("%.1f", float64(a.depth)/float64(max(a.within, 1))), of(a.wrong), of(a.nearest),
					fmt.Sprintf("%.1f %%", 100*float64(a.silent)/float64(a.samples+a.silent)))
				if a.samples < enough {
					t.Fatalf("only %d samples", a.samples)
				}
				// The aim is 1 % wrong over many programs, as in the table. One program may have
				// more: all samples of one loop are wrong together. What holds for each is that the
				// scope that both neighbours share is rarely wrong where the next record often is.
				if 10*a.wrong > a.nearest {
					t.Errorf("%d of %d leaves are wrong, %d if the next record counted", a.wrong, a.samples, a.nearest)
				}
			})
		}
	}
	if *document && !t.Failed() {
		if err := report.Update("../../docs/measurements/inlined-methods.md", "attribution", table.Markdown()); err != nil {
			t.Fatal(err)
		}
	}
}

// measureAttribution runs a program from its start, and looks at its samples when that time is
// over: for as long again, and until there are enough.
func measureAttribution(t *testing.T, jdk guests.JDK, name string, warmUp time.Duration, enough int) (a attribution) {
	t.Helper()
	guest, err := suite.Start(t.Context(), jdk, name, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints")
	if err != nil {
		unavailable(t, err.Error())
	}
	defer guest.Close()
	ran := make(chan error, 1)
	go func() {
		_, err := guest.RunFor(warmUp + 2*time.Minute)
		ran <- err
	}()
	time.Sleep(warmUp) // The table is of code that has run for as long.
	vm := &jvm{home: jdk.Home, pid: guest.PID(), mem: processMemory(guest.PID())}
	vm.findLibrary(t)
	all, few := vm.attach(t), vm.attach(t)
	few.SafepointsOnly = true
	for begin := time.Now(); time.Since(begin) < warmUp || a.samples < enough; {
		select {
		case err := <-ran:
			t.Fatalf("the program ended after %d samples: %v", a.samples, err)
		default:
		}
		for _, pc := range vm.sample(t, suite.Thread, 200*time.Millisecond) {
			a.add(all, few, all.siteAt(pc, true))
		}
	}
	return a
}

func (a *attribution) add(all, few *Process, site vmruntime.Site) {
	truth, err := all.Lookup(site)
	if err != nil || truth[0].Tier != vmruntime.TierC2 && truth[0].Tier != vmruntime.TierC1 {
		return
	}
	named, err := few.Lookup(site)
	if err != nil {
		return
	}
	if truth[0].Approximate {
		a.silent++
		return
	}
	a.samples++
	want, got := chainOf(truth), chainOf(named)
	switch {
	case !named[0].Approximate && want == got:
		a.exact++
	case named[0].Approximate && strings.HasPrefix(want, got):
		a.within++
		a.depth += len(truth) - len(named)
	default:
		a.wrong++
	}
	if !strings.HasPrefix(want, chainOf(nearest(few, site))) {
		a.nearest++
	}
}

// chainOf is the methods of frames, outermost first.
func chainOf(frames []vmruntime.Frame) string {
	var b strings.Builder
	for _, f := range slices.Backward(frames) {
		b.WriteString(f.Function + f.Signature + "\n")
	}
	return b.String()
}

// nearest names a place as the VM does itself where an address has no record: by the next one
// (PcDescContainer::find_pc_desc, approximate).
func nearest(p *Process, site vmruntime.Site) (frames []vmruntime.Frame) {
	for ; ; site.PC++ {
		next, err := p.Lookup(site)
		if err != nil { // the end of the code
			return frames
		}
		if frames = next; !frames[0].Approximate {
			return frames
		}
		site.Exact = false
	}
}
