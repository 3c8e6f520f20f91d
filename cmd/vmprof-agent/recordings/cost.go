package recordings

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/price"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// costFlag is the flag of report for costs.
type costFlag struct {
	path  string
	model *price.Model // nil without the flag
}

func (c *costFlag) add(fs *pflag.FlagSet) {
	fs.StringVar(&c.path, "cost", "", "show costs by the model in `FILE` (YAML)")
}

// costViews are the views that can show any value of samples.
var costViews = []string{"", "methods", "threads", "tree"}

// read reads the model.
func (c *costFlag) read(view, per string) (err error) {
	switch {
	case c.path == "":
		return nil
	case !slices.Contains(costViews, view), per != "":
		return cli.Misuse("--cost is for --view=methods, threads or tree, and for -o")
	}
	c.model, err = price.Read(c.path)
	return err
}

// price returns the costs of recordings, also of several kinds, added up.
func (c *costFlag) price(list []compare.Named) (*pprof.Profile, error) {
	var priced []compare.Named
	var profiles []*pprof.Profile
	for _, r := range list {
		p, err := c.model.Apply(r.Profile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		priced, profiles = append(priced, compare.Named{Name: r.Name, Profile: p}), append(profiles, r.Profile)
	}
	p, err := compare.Merge(priced)
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		p.Comments = append(p.Comments, accounts(list)...)
	}
	if missing := c.model.Missing(profiles); len(missing) > 0 {
		p.Comments = append(p.Comments, "costs not included, as they were not recorded: "+strings.Join(missing, ", "))
	}
	return p, nil
}

// maxAccounts bounds how many recordings say what they lost.
const maxAccounts = 20

// accounts say what each recording has and lost: a sum of several kinds can only say it of one.
func accounts(list []compare.Named) (sentences []string) {
	for _, r := range list[:min(len(list), maxAccounts)] {
		if m, err := stored.MetadataOf(r.Profile); err == nil {
			sentences = append(sentences, filepath.Base(r.Name)+": "+m.Account.String())
		}
	}
	return sentences
}

// showCosts shows or writes the costs of files.
func (o *reportOptions) showCosts(ctx context.Context, stdout io.Writer) error {
	list, err := o.recordings(ctx)
	if err != nil {
		return err
	}
	p, err := o.price(list)
	if err != nil {
		return err
	}
	return o.putCosts(stdout, p, pageTitle(o.files), strings.Join(o.files, " "))
}

// putCosts shows costs, or writes them with -o.
func (o *reportOptions) putCosts(stdout io.Writer, p *pprof.Profile, title, arguments string) error {
	if format, err := sink.FormatOf(o.output); o.output != "" && err == nil && format == sink.FormatPprof {
		if err := sink.WriteStored(o.output, stdout, p); err != nil || o.output == sink.Stdout {
			return err
		}
		_, err = fmt.Fprintf(stdout, "written to %s\n", o.output)
		return err
	}
	if o.output != "" {
		name := strings.TrimSuffix(filepath.Base(o.path), filepath.Ext(o.path)) + ".pb.gz"
		return o.write(stdout, title, []compare.Named{{Name: name, Profile: p}}, func(compare.Named) string {
			return "--cost=" + o.path + " " + arguments
		})
	}
	return o.show(stdout, p, title)
}
