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

Lists the USDT probes that a process offers, by file, with how many places each
has in the code, what instruction stands there, and its operands: sizes (u64 is
a number of 64 bits without a sign, s32 one of 32 bits with one) and places.
Attaches to nothing.

  vmprof-agent probes -p PID                  # all of them
  vmprof-agent probes -p PID gc__             # those with gc__ in their name
  vmprof-agent probes -p PID libjvm.so        # those of one file

  nop       a hit costs about half a microsecond
  nop5      the same on Linux 6.16 and later; ten microseconds and more before.
            Linux 6.18 and later: refused in functions that call nothing
  stepped   a hit costs ten microseconds and more: only for rare events
  semaphore the program can see that a probe is attached, and may do more work

These probes, and functions of any file, can be recorded:

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
		return unexpected(fs.Arg(0), "; name the process with -p")
	case *pid <= 0:
		return usageError("-p needs the number of a process")
	case fs.NArg() > 1:
		return usageError("unexpected argument " + fs.Arg(1))
	}
	pool := proc.NewPool(proc.PoolOptions{Deadline: probesDeadline, FirstDeadline: probesDeadline})
	offer, err := proc.Call(ctx, pool, *pid, func() (offer, error) { return offerOf(proc.DefaultRoot, *pid, fs.Arg(0)) })
	if err != nil {
		return err
	}
	for _, path := range offer.unread {
		fmt.Fprintf(stderr, "not read, as it was deleted or replaced: %s\n", plainText(path, maxPath))
	}
	if len(offer.files) == 0 {
		return nothingOffered(*pid, fs.Arg(0))
	}
	return offer.write(stdout, columns(stdout), *pid)
}

func nothingOffered(pid int, filter string) error {
	if filter != "" {
		return fmt.Errorf("no USDT probe of process %d has %q in its name or in that of its file; "+
			"leave the filter out to see all", pid, filter)
	}
	return fmt.Errorf("the files of process %d have no USDT probes; "+
		"entries of functions can be probed nevertheless (func:SYMBOL)", pid)
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
