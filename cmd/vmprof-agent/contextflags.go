package main

import (
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// contextFlags are the flags of record and serve that say how calling contexts are found.
type contextFlags struct {
	mode   string
	every  uint32
	levels uint32
	check  bool
	leave  bool

	context profile.ContextMode // once check has read it
}

// add defines the flags.
func (c *contextFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&c.mode, "context", profile.ContextWalk.String(), "context `MODE`: walk, partial or chain")
	fs.Uint32Var(&c.every, "walk-every", 0, "chain: walk one in `N` known callers (default adaptive)")
	fs.BoolVar(&c.leave, "leave-unknown", false, "chain: do not walk every unknown caller, only one in N")
	fs.Uint32Var(&c.levels, "confirm-levels", 0, "partial: match `N` frames with the last sample (default 4)")
	fs.BoolVar(&c.check, "check-contexts", false, "partial, chain: also walk every stack; report accuracy")
	advanced(fs, groupContexts, "context", "walk-every", "leave-unknown", "confirm-levels", "check-contexts")
}

// read reads what the flags say, and refuses those that can have no effect.
func (c *contextFlags) read(fs *pflag.FlagSet, exact bool) error {
	var err error
	if c.context, err = profile.ParseContextMode(c.mode); err != nil {
		return usageError("--context: " + err.Error())
	}
	if exact && c.context != profile.ContextWalk {
		return usageError("--exact records every context: remove --context")
	}
	for flag, off := range map[string]bool{
		"leave-unknown":  c.context != profile.ContextChain,
		"walk-every":     c.context != profile.ContextChain,
		"confirm-levels": c.context != profile.ContextPartial,
		"check-contexts": c.context == profile.ContextWalk,
	} {
		if off && fs.Changed(flag) {
			return usageError("--" + flag + " does not apply to --context=" + c.mode + ": remove one of them")
		}
	}
	if c.levels > maxConfirmLevels {
		return usageError("--confirm-levels needs a number from 1 to 64")
	}
	return nil
}

const maxConfirmLevels = 64

// apply has the agent do what the flags say.
func (c *contextFlags) apply(to *agent.Options) {
	to.Contexts, to.WalkEvery, to.ConfirmLevels, to.CheckContexts = c.context, c.every, c.levels, c.check
	to.LeaveUnknown = c.leave
}
