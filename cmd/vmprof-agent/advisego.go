package main

import (
	"fmt"
	"io"
	"os"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/advise/gopgo"
)

// adviseGo makes a profile for the Go compiler.
func adviseGo(o *adviseOptions, p *pprof.Profile, stdout io.Writer) error {
	plan, err := gopgo.Advise(p, gopgo.Options{PID: o.pid})
	if err != nil {
		return err
	}
	if o.output == "" {
		return usageError("--for=go-pgo needs -o FILE, such as default.pgo")
	}
	f, err := os.Create(o.output)
	if err != nil {
		return fmt.Errorf("write advice: %w", err)
	}
	if err := plan.Profile.Write(f); err != nil {
		f.Close()
		return fmt.Errorf("write advice: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write advice: %w", err)
	}
	_, err = io.WriteString(stdout, plan.Text(o.output))
	return err
}
