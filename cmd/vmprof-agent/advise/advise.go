// Package advise has the verb advise: it turns a recorded profile into hints for an optimizer. A
// file for each optimizer calls the package that makes its hints.
package advise

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

const adviseUsage = `Usage: vmprof-agent advise --for=OPTIMIZER [flags] FILE

Turns a recorded profile into hints for an optimizer, each with its evidence and
what it may save at most. Nothing is applied: try the hints in one process, and
compare it with one without. FILE is what record wrote. OPTIMIZER is one of:

  hotspot         the JVM's inliner: compiler directives (JDK 9 and newer)
  compilecommand  the same as lines of -XX:CompileCommandFile
  go-pgo          the Go compiler: a profile for go build -pgo

  vmprof-agent record -e cpu,calls -p 4711 -d 60 -o calls.pb.gz
  vmprof-agent advise --for=hotspot -o directives.json calls.pb.gz
  vmprof-agent advise --for=compilecommand -o .hotspot_compiler calls.pb.gz
  vmprof-agent record -p 4712 -d 60 -o cpu.pb.gz
  vmprof-agent advise --for=go-pgo -o default.pgo cpu.pb.gz

Flags:
`

// adviseOptions are the flags of advise.
type adviseOptions struct {
	pid    int64
	output string
}

// An adviser makes hints for one optimizer.
type adviser struct {
	name   string
	advise func(o *adviseOptions, p *pprof.Profile, stdout io.Writer) error
}

// advisers are all of them, by the value of --for.
var advisers = []adviser{
	{"hotspot", adviseHotspot},
	{"compilecommand", adviseCompileCommand},
	{"go-pgo", adviseGo},
}

// Names are the values of --for.
func Names() (names []string) {
	for _, a := range advisers {
		names = append(names, a.name)
	}
	return names
}

// Run is the verb.
func Run(_ context.Context, args []string, stdout, stderr io.Writer) error {
	var o adviseOptions
	fs := cli.NewFlags("advise", adviseUsage, stderr)
	name := fs.String("for", "", "make hints for `OPTIMIZER`")
	fs.StringVarP(&o.output, "output", "o", "", "also write the hints to `FILE`, as the optimizer reads them")
	fs.Int64VarP(&o.pid, "pid", "p", 0, "advise about process `PID` (default: the busiest)")
	if err := cli.Parse(fs, adviseUsage, args); err != nil {
		return err
	}
	at := slices.Index(Names(), *name)
	switch {
	case at < 0:
		return cli.Misuse("--for needs one of " + strings.Join(Names(), ", "))
	case fs.NArg() != 1:
		return cli.Misuse("name one file, such as calls.pb.gz")
	case o.output == sink.Stdout:
		return cli.Misuse("-o needs a file: stdout has the advice for people")
	}
	p, err := input.ReadFile(fs.Arg(0))
	if err != nil {
		return err
	}
	if err := advisers[at].advise(&o, p, stdout); err != nil {
		return fmt.Errorf("%s: %w", fs.Arg(0), err)
	}
	return nil
}
