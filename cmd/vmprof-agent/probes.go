package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/valueprobe"
)

const probesUsage = `Usage: vmprof-agent probes -p PID [FILTER]

Lists the USDT probes of a process, by file: the number of sites of each probe,
the instruction there, and the operands with size (u64: unsigned, 64 bits; s32:
signed, 32 bits) and location. Attaches to nothing.

  vmprof-agent probes -p PID                  # all probes
  vmprof-agent probes -p PID gc__             # probes with gc__ in the name
  vmprof-agent probes -p PID libjvm.so        # probes of one file

  nop       a hit costs about half a microsecond
  nop5      the same on Linux 6.16 and later; ten microseconds and more before.
            Linux 6.18 and later: refused in functions that call nothing
  stepped   a hit costs ten microseconds and more: only for rare events
  semaphore the program sees an attached probe, and may do more work

To record the values at one of these probes, or at the entry of a function:

  vmprof-agent record -e value --probe SPEC -p PID

` + valueprobe.Help + `
Flags:
`

// probesDeadline is how long the files of a process may take to read: 400 MB of debug information are passed over.
const probesDeadline = 20 * time.Second

// probes is the verb.
func probes(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("probes", probesUsage, stderr)
	pid := fs.IntP("pid", "p", 0, "list the probes of process `PID`")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case *pid <= 0 && fs.NArg() == 1:
		return unexpected(fs.Arg(0), "; select the process with -p")
	case *pid <= 0:
		return usageError("-p needs a process id")
	case fs.NArg() > 1:
		return usageError("unexpected argument " + fs.Arg(1))
	}
	pool := proc.NewPool(proc.PoolOptions{Deadline: probesDeadline, FirstDeadline: probesDeadline})
	offer, err := proc.Call(ctx, pool, *pid, func() (offer, error) { return offerOf(proc.DefaultRoot, *pid, fs.Arg(0)) })
	if err != nil {
		return err
	}
	for _, path := range offer.unread {
		fmt.Fprintf(stderr, "skipped, because it was deleted or replaced: %s\n", plainText(path, maxPath))
	}
	if len(offer.files) == 0 {
		return nothingOffered(*pid, fs.Arg(0))
	}
	return offer.write(stdout, columns(stdout), *pid)
}

func nothingOffered(pid int, filter string) error {
	if filter != "" {
		return fmt.Errorf("no USDT probe of process %d has %q in its name or file name; "+
			"remove the filter to see all", pid, filter)
	}
	return fmt.Errorf("the files of process %d contain no USDT probes; "+
		"record the entry of a function instead (func:SYMBOL)", pid)
}

// offerOf reads what a process offers; it runs on a worker.
func offerOf(root proc.Root, pid int, filter string) (o offer, err error) {
	o.unread, err = attach.MappedFiles(root, pid, func(m *attach.MappedFile) error {
		found, err := m.ELF.Probes()
		if err != nil {
			return fmt.Errorf("probes of %s: %w", plainText(m.Path, maxPath), err)
		}
		o.add(m.Path, m.ELF.Machine(), m.File, found, filter)
		return nil
	})
	return o, err
}
