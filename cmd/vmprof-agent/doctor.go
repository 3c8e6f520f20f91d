package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"golang.org/x/term"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/agent/engines"
)

const doctorUsage = `Usage: vmprof-agent doctor [--json]

Checks what recording needs: kernel, privileges, settings and every running JVM.
Prints a line for each; for a problem also why it matters and how to mend it.
Tries things out, changes nothing.

  ok       as it should be
  limited  recording works, with less in the profile
  missing  recording does not work
  info     worth knowing

Exits with 0 if recording works here, with 1 if something is missing.

  vmprof-agent doctor --json | jq '.checks[] | select(.status == "missing")'

Flags:
`

// doctorVerb is the verb.
func doctorVerb(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("doctor", doctorUsage, stderr)
	asJSON := fs.Bool("json", false, "print the report as JSON")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usageError("unexpected argument " + fs.Arg(0))
	}
	env := doctor.Host()
	env.Engines, env.GuestSocket = tryEngines, engines.DefaultGuestSocket
	env.Inspect = inspectHotSpot(env.Proc, env.Pool)
	report := doctor.Run(ctx, env)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := writeReport(stdout, report, *asJSON); err != nil {
		return err
	}
	if !report.Ready {
		return errReported
	}
	return nil
}

// tryEngines makes an agent that samples nothing, for the sake of its call engines. Guests connect to the
// socket that they know, so the trial has a socket of its own, which none knows.
func tryEngines(ctx context.Context) ([]profile.Choice, error) {
	dir, err := trialDir(os.TempDir(), "/run", "/dev/shm", "/")
	if err == nil {
		defer os.RemoveAll(dir)
	} else {
		dir = "/proc/self/none" // the engine that needs a socket says so, and the others are tried
	}
	a, err := agent.New(ctx, agent.Options{Filter: true, Calls: &engines.Options{GuestSocket: filepath.Join(dir, "guest.sock")}})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return a.CallChoices(), nil
}

// trialDir makes a directory in the first of those where it can. The agent's image has no /tmp.
func trialDir(parents ...string) (dir string, err error) {
	for _, parent := range parents {
		if dir, err = os.MkdirTemp(parent, "vmprof-doctor-"); err == nil {
			return dir, nil
		}
	}
	return "", err
}

func writeReport(w io.Writer, r doctor.Report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.WriteText(w, columns(w))
}

// columns is the width of a terminal, and 80 for everything else.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
