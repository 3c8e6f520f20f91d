package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// ruleFlags are the flags of serve for numbers of the user's own.
type ruleFlags struct {
	texts []string
	rules []*rule.Rule
}

func (r *ruleFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&r.texts, "rule", nil, "add a metric by `RULE`: docs/costs.md")
}

// read parses the rules, for an agent that records some contents.
func (r *ruleFlags) read(contents []sink.Content) error {
	var errs []error
	for _, text := range r.texts {
		one, err := rule.Parse(text)
		if err != nil {
			errs = append(errs, misuse("--rule: "+err.Error()))
			continue
		}
		r.rules = append(r.rules, one)
	}
	if len(errs) > 0 || len(r.rules) == 0 {
		return errors.Join(errs...)
	}
	if _, err := rule.NewRunner(r.rules, contents, slog.New(slog.DiscardHandler)); err != nil {
		return misuse("--rule: " + err.Error())
	}
	return nil
}

// contents are the parts of each window. The slowest calls are in that of wall time.
func (o *serveOptions) contents() (parts []sink.Content) {
	if o.time {
		parts = append(parts, sink.Time)
	}
	if o.calls {
		parts = append(parts, sink.CallCounts)
	}
	for kind, on := range o.events.Kinds {
		if kind := profile.EventKind(kind); on {
			content := sink.OfEvents(kind)
			parts = append(parts, content|o.slow.content(part{kind.String(), content}))
		}
	}
	return parts
}
