package sampling

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// callFlags are the flags of record and serve that say how calls are sampled.
type callFlags struct {
	options engines.Options
	Exact   string
}

// add defines the flags.
func (c *callFlags) add(fs *pflag.FlagSet) {
	o := &c.options
	fs.StringVar(&o.Engine, "engine", calls.Auto, "call `ENGINE`: auto, "+strings.Join(engines.Names(), ", "))
	fs.IntVar(&o.Rate.Stride, "stride", 0, "sample every `N`th call of a burst (default from --budget)")
	fs.IntVar(&o.Rate.Samples, "samples", 0, "take `N` samples in a burst (default from --budget)")
	fs.BoolVar(&o.Logical, "logical", false, "include inlined calls, from HotSpot's counters")
	fs.StringVar(&o.GuestSocket, "guest-socket", engines.DefaultGuestSocket, "socket `PATH` for VMs with vmprof.h")
	cli.Advanced(fs, cli.GroupBursts, "engine", "stride", "samples", "logical", "guest-socket")
}

// AddExact defines the flag for counting every call, which no one wants always on.
func (c *callFlags) AddExact(fs *pflag.FlagSet) {
	fs.StringVar(&c.Exact, "exact", "", "count every call by `HOW`: contexts, edges, counters")
	fs.Lookup("exact").NoOptDefVal = "contexts"
	cli.Advanced(fs, cli.GroupExact, "exact")
}

// exacts are the values of --exact.
var exacts = map[string]engines.Exact{"": engines.NotExact, "contexts": engines.ExactContexts,
	"edges": engines.ExactEdges, "counters": engines.ExactCounters}

// check reads what the flags say. With alone nothing but calls is recorded; without wanted no calls
// are.
func (c *callFlags) check(fs *pflag.FlagSet, wanted, alone bool) error {
	if !wanted {
		for _, name := range []string{"engine", "stride", "samples", "logical", "guest-socket"} {
			if fs.Changed(name) {
				return cli.Misuse("--" + name + " needs -e calls or -e cpu,calls")
			}
		}
	}
	o := &c.options
	if o.Engine != calls.Auto && !slices.Contains(engines.Names(), o.Engine) {
		return cli.Misuse(fmt.Sprintf("--engine %s: choose auto, or one of %s", o.Engine,
			strings.Join(engines.Names(), ", ")))
	}
	if o.Rate.Stride < 0 || o.Rate.Stride > maxStride || o.Rate.Samples < 0 || o.Rate.Samples > maxSamples {
		return cli.Misuse(fmt.Sprintf("--stride needs a number from 1 to %d, --samples one from 1 to %d", maxStride,
			maxSamples))
	}
	exact, known := exacts[c.Exact]
	switch {
	case !known:
		return cli.Misuse(fmt.Sprintf("--exact=%s: choose contexts, edges or counters", c.Exact))
	case exact != engines.NotExact && !alone:
		return cli.Misuse("--exact needs -e calls, without other events; --exact=contexts also takes -e calls,alloc " +
			"--exact-alloc")
	}
	o.Exact = exact
	if err := c.checkTogether(fs); err != nil {
		return err
	}
	var err error
	if f := fs.Lookup("frequency"); f.Changed {
		o.Rate.Hz, err = fs.GetInt("frequency")
	}
	return err
}

// checkTogether refuses flags that can have no effect together with others. Where --engine=auto
// leaves it open, the profile says which engines a flag does not apply to.
func (c *callFlags) checkTogether(fs *pflag.FlagSet) error {
	if c.options.Exact != engines.NotExact {
		for _, name := range []string{"engine", "budget", "stride", "samples", "logical"} {
			if fs.Changed(name) {
				return cli.Misuse(fmt.Sprintf("--%s controls sampling, but --exact counts every call: remove one of "+
					"them", name))
			}
		}
	}
	engine := c.options.Engine
	traits := engines.TraitsOf(engine)
	for _, r := range []struct {
		flag string
		off  bool // for that engine
		why  string
	}{
		{"stride", traits.SelfGoverned, "which derives its watches from --budget"},
		{"samples", traits.SelfGoverned, "which derives its watches from --budget"},
		{"stride", traits.Stride == calls.EveryCall, "which traps on every call of a burst"},
		{"logical", engine != calls.Auto && !traits.Inlined, "which does not observe inlined calls"},
	} {
		if r.off && fs.Changed(r.flag) {
			return cli.Misuse(fmt.Sprintf("--%s does not apply to --engine=%s, %s: remove one of them", r.flag, engine,
				r.why))
		}
	}
	return nil
}

// Bounds of bursts: beyond the largest of the paper's Table 2.
const (
	maxStride  = 1 << 20
	maxSamples = 1 << 17
)
