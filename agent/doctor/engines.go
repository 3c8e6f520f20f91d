package doctor

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// An EngineTrial tries all call engines, as recording does, and takes them away again. It must not
// be noticed: the guests' socket that the trial listens on is one of its own, to which nobody
// connects.
type EngineTrial func(ctx context.Context) ([]profile.Choice, error)

// findEngines says which call engines work here. None is needed for anything but calls.
func findEngines(ctx context.Context, env *Env) []Finding {
	if env.Engines == nil {
		return nil
	}
	choices, err := env.Engines(ctx)
	if err != nil {
		return []Finding{{"engines", "call engines", Result{Limited, err.Error(), "Calls cannot be sampled.", ""}}}
	}
	var findings []Finding
	for _, c := range choices {
		f := Finding{ID: "engine_" + c.Engine, Title: "engine " + c.Engine, Result: ok(c.Reason)}
		switch {
		case !c.Chosen:
			f.Result = Result{Status: Info, Detail: "not used: " + c.Reason}
		case c.Socket:
			f.Result = findGuestSocket(env) // what the trial left out
		}
		findings = append(findings, f)
	}
	return findings
}
