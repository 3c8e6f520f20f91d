package calls

import "github.com/vmprof-agent/vmprof-agent/agent/model/profile"

// An Estimated is the result for one process from an engine that has no records of calls, but
// estimates them when a window closes.
type Estimated struct {
	Calls       []*profile.Calls
	Inlining    *profile.Inlining   // nil if the VM does not show it
	Credibility profile.Credibility // credibility of the VM's own counters
	Windows     int                 // windows of breakpoints that the estimate uses
	Extent      profile.Extent      // the part of the sampled CPU time whose code has a number of calls
	Note        string              // a limit that readers must know, or ""
	Failed      bool                // there is no estimate; Note says why
}
