package sampling

import (
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// Clock are the flags of verbs that sample CPU time: how often, and by which clock.
type Clock struct {
	Frequency int
	By        attach.Clock
}

// Add defines the flags.
func (c *Clock) Add(fs *pflag.FlagSet) {
	fs.IntVarP(&c.Frequency, "frequency", "F", agent.DefaultFrequency, "take `HZ` samples per CPU second")
	fs.TextVar(&c.By, "clock", attach.AutoClock, "sample by `CLOCK`: tick, cpu-clock")
}

// Check fails if the clock cannot tick as often.
func (c *Clock) Check() error {
	if c.Frequency < 1 {
		return cli.Misuse("-F needs a frequency of at least 1 Hz")
	}
	return nil
}

// Apply has the agent do what the flags say.
func (c *Clock) Apply(to *agent.Options) { to.Frequency, to.Clock = c.Frequency, c.By }
