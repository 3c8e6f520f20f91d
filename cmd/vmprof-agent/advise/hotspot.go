package advise

import (
	"fmt"
	"io"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/advise/hotspot"
)

// adviseHotspot makes compiler directives.
func adviseHotspot(o *adviseOptions, p *pprof.Profile, stdout io.Writer) error {
	return adviseJVM(o, p, stdout, hotspot.DirectivesFile, "directives.json", (*hotspot.Plan).Directives)
}

// adviseCompileCommand makes compile commands.
func adviseCompileCommand(o *adviseOptions, p *pprof.Profile, stdout io.Writer) error {
	return adviseJVM(o, p, stdout, hotspot.CommandFile, ".hotspot_compiler", (*hotspot.Plan).Commands)
}

// adviseJVM writes the advice for people, and the file.
func adviseJVM(
	o *adviseOptions, p *pprof.Profile, stdout io.Writer, form hotspot.Form, name string,
	content func(*hotspot.Plan) []byte,
) error {
	plan, err := hotspot.Advise(p, hotspot.Options{PID: o.pid})
	if err != nil {
		return err
	}
	if o.output != "" {
		name = o.output
	}
	if err := plan.WriteText(stdout, form, name); err != nil {
		return err
	}
	switch {
	case !plan.HasMethods():
		if o.output != "" {
			_, err = fmt.Fprintf(stdout, "%s was not written: no advice is about methods\n", o.output)
		}
	case o.output == "":
		_, err = fmt.Fprintf(stdout, "%s, as -o writes it:\n%s", name, content(plan))
	default:
		if err := outfile.Write(o.output, func(w io.Writer) error {
			_, err := w.Write(content(plan))
			return err
		}); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "written to %s\n", o.output)
	}
	return err
}
