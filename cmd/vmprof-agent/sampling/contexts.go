package sampling

import (
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// Contexts are the flags of record and serve that say how calling contexts are found.
type Contexts struct {
	mode   string
	every  uint32
	levels uint32
	check  bool
	leave  bool

	context profile.ContextMode // once check has read it
}

// Add defines the flags.
func (c *Contexts) Add(fs *pflag.FlagSet) {
	fs.StringVar(&c.mode, "context", profile.ContextWalk.String(), "context `MODE`: walk, partial or chain")
	fs.Uint32Var(&c.every, "walk-every", 0, "chain: walk one in `N` known callers (default adaptive)")
	fs.BoolVar(&c.leave, "leave-unknown", false, "chain: do not walk every unknown caller, only one in N")
	fs.Uint32Var(&c.levels, "confirm-levels", 0, "partial: match `N` frames with the last sample (default 4)")
	fs.BoolVar(&c.check, "check-contexts", false, "partial, chain: also walk every stack; report accuracy")
	cli.Advanced(fs, cli.GroupContexts, "context", "walk-every", "leave-unknown", "confirm-levels", "check-contexts")
}

// Read reads what the flags say, and refuses those that can have no effect.
func (c *Contexts) Read(fs *pflag.FlagSet, exact bool) error {
	var err error
	if c.context, err = profile.ParseContextMode(c.mode); err != nil {
		return cli.Misuse("--context: " + err.Error())
	}
	if exact && c.context != profile.ContextWalk {
		return cli.Misuse("--exact records every context: remove --context")
	}
	for flag, off := range map[string]bool{
		"leave-unknown":  c.context != profile.ContextChain,
		"walk-every":     c.context != profile.ContextChain,
		"confirm-levels": c.context != profile.ContextPartial,
		"check-contexts": c.context == profile.ContextWalk,
	} {
		if off && fs.Changed(flag) {
			return cli.Misuse("--" + flag + " does not apply to --context=" + c.mode + ": remove one of them")
		}
	}
	if c.levels > maxConfirmLevels {
		return cli.Misuse("--confirm-levels needs a number from 1 to 64")
	}
	return nil
}

const maxConfirmLevels = 64

// Apply has the agent do what the flags say.
func (c *Contexts) Apply(to *agent.Options) {
	to.Contexts, to.WalkEvery, to.ConfirmLevels, to.CheckContexts = c.context, c.every, c.levels, c.check
	to.LeaveUnknown = c.leave
}
