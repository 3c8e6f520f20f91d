package main

import (
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

// clockFlags are the flags of verbs that sample CPU time: how often, and by which clock.
type clockFlags struct {
	frequency int
	clock     attach.Clock
}

func (c *clockFlags) add(fs *pflag.FlagSet) {
	fs.IntVarP(&c.frequency, "frequency", "F", agent.DefaultFrequency, "take `HZ` samples per CPU second")
	fs.TextVar(&c.clock, "clock", attach.AutoClock, "sample by `CLOCK`: tick, cpu-clock")
}

func (c *clockFlags) check() error {
	if c.frequency < 1 {
		return misuse("-F needs a frequency of at least 1 Hz")
	}
	return nil
}

// apply has the agent do what the flags say.
func (c *clockFlags) apply(to *agent.Options) { to.Frequency, to.Clock = c.frequency, c.clock }
