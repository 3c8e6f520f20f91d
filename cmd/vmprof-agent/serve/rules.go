package serve

import (
	"errors"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
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
			errs = append(errs, cli.Misuse("--rule: "+err.Error()))
			continue
		}
		r.rules = append(r.rules, one)
	}
	if len(errs) > 0 || len(r.rules) == 0 {
		return errors.Join(errs...)
	}
	if _, err := rule.NewRunner(r.rules, contents, slog.New(slog.DiscardHandler)); err != nil {
		return cli.Misuse("--rule: " + err.Error())
	}
	return nil
}

// parts are those of each window. The slowest calls are in that of wall time.
func (o *serveOptions) parts() []sampling.Part {
	parts := o.Each()
	for i := range parts {
		parts[i].Content |= o.slow.Content(parts[i].Content)
	}
	return parts
}

// contents are those of the parts.
func (o *serveOptions) contents() (list []sink.Content) {
	for _, p := range o.parts() {
		list = append(list, p.Content)
	}
	return list
}
