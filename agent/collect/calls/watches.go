package calls

import (
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Watches counts watches of breakpoints by their outcome.
type Watches struct {
	Complete    uint64 // lasted as long as planned
	Full        uint64 // reached their limit of hits before
	Void        uint64 // the watched code was replaced during the watch; the observation is not used
	Refused     uint64 // no thread could be watched
	Interrupted uint64 // ended early by the engine; what they observed is not used
	Failed      uint64 // any other error; see the log
	// BusyThreads were left out of watches, because another tool uses their debug registers. Each
	// counts once per watch.
	BusyThreads uint64
}

// ByOutcome returns the counts by the names of outcomes in metrics.
func (w *Watches) ByOutcome() map[string]uint64 {
	return map[string]uint64{
		"complete": w.Complete, "full": w.Full, "void": w.Void, "refused": w.Refused, "interrupted": w.Interrupted,
		"failed": w.Failed,
	}
}

// All is the number of watches.
func (w *Watches) All() uint64 {
	return w.Complete + w.Full + w.Void + w.Refused + w.Interrupted + w.Failed
}

// Losses describes what was not observed and why; "" if nothing was lost.
func (w *Watches) Losses() string {
	var parts []string
	for _, p := range []struct {
		n    uint64
		what string
	}{
		{w.Void, "void, because the watched code was replaced"},
		{w.Refused, "refused, because no thread could be watched"},
		{w.Interrupted, "interrupted"},
		{w.Failed, "failed (see the agent's log)"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	text := ""
	if len(parts) > 0 {
		text = fmt.Sprintf("of %s of breakpoints, %s", stored.Plural(int(w.All()), "watch"), strings.Join(parts, ", "))
	}
	if w.BusyThreads > 0 {
		if text != "" {
			text += "; "
		}
		text += stored.Plural(int(w.BusyThreads), "time") +
			" a thread was left out of a watch, because somebody else uses its debug registers"
	}
	return text
}
