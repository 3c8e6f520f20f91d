package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/version"
)

const versionUsage = `Usage: vmprof-agent version [--json]

Prints the version of the agent.

Flags:
`

// printVersion is the verb.
func printVersion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := cli.NewFlags("version", versionUsage, stderr)
	asJSON := fs.Bool("json", false, "print the version as JSON")
	if err := cli.Parse(fs, versionUsage, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return cli.Misuse("unexpected argument " + fs.Arg(0))
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(version.Get())
	}
	_, err := fmt.Fprintln(stdout, "vmprof-agent", version.String())
	return err
}
