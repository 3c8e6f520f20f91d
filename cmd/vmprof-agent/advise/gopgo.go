package advise

import (
	"io"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/advise/gopgo"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// adviseGo makes a profile for the Go compiler.
func adviseGo(o *adviseOptions, p *pprof.Profile, stdout io.Writer) error {
	plan, err := gopgo.Advise(p, gopgo.Options{PID: o.pid})
	if err != nil {
		return err
	}
	if o.output == "" {
		return cli.Misuse("--for=go-pgo needs -o FILE, such as default.pgo")
	}
	if err := outfile.Write(o.output, plan.Profile.Write); err != nil {
		return err
	}
	_, err = io.WriteString(stdout, plan.Text(o.output))
	return err
}
