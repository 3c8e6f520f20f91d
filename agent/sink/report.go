package sink

import (
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// Report writes the views that a profile has something for, and the footer. Of events these are their own view and
// the contexts, which safepoints have none of. Of all else they are hot methods, hot edges of call graphs, the contexts,
// which edges of call graphs alone do not have, and how these were found if not all stacks were walked. Nil options are
// DefaultViewOptions.
func Report(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	views := []func(io.Writer, *pprof.Profile, *ViewOptions) error{Methods}
	if events := EventView(p); events != nil {
		views[0] = events
	}
	if holdsCalls(p) {
		views = append(views, Edges)
	}
	kind, ofEvents := EventKindOf(p)
	if stopped := ofEvents && kind == profile.Pauses; !stopped && (!HasCalls(p) || HasTime(p) || holdsContexts(p)) {
		views = append(views, Tree)
	}
	if tellsContexts(p) {
		views = append(views, Contexts)
	}
	for _, view := range views {
		if err := view(w, p, opts); err != nil {
			return err
		}
		fmt.Fprintln(w) // an error shows at the next write
	}
	return Footer(w, p, opts.Width)
}

// Text writes the report of a profile as it is kept in a file, where names need not be shortened.
func Text(w io.Writer, p *pprof.Profile) error {
	opts := DefaultViewOptions()
	opts.N, opts.Width = 100, 0
	return Report(w, p, opts)
}
