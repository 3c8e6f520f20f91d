// Package doctor has the verb doctor: it runs the checks of package agent/doctor on this machine,
// with agents that try what recording needs.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	eventprobes "github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const doctorUsage = `Usage: vmprof-agent doctor [--all] [--json]

Checks the requirements: kernel, privileges, settings, and every running JVM
and Python interpreter. Prints one line for each; for a problem, also its effect
and the remedy. Processes that are alike share a line. Changes nothing.

  ok       requirement met
  limited  recording works, but the profile lacks something
  missing  recording does not work
  info     for information

Exits with 0 if recording works here, with 1 if a requirement is missing.

  vmprof-agent doctor --json | jq '.checks[] | select(.status == "missing")'

Flags:
`

// Run is the verb.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := cli.NewFlags("doctor", doctorUsage, stderr)
	asJSON := fs.Bool("json", false, "print the report as JSON, with every process")
	all := fs.Bool("all", false, "print a line for each process")
	if err := cli.Parse(fs, doctorUsage, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return cli.Misuse("unexpected argument " + fs.Arg(0))
	}
	env := doctor.Host()
	env.Tick, env.OffCPU, env.Engines, env.GuestSocket = tryTick, tryOffCPU, tryEngines, engines.DefaultGuestSocket
	env.Inspect = inspector(env.Proc, env.Pool, env.Runtimes)
	report := doctor.Run(ctx, env)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := writeReport(stdout, report, *asJSON, *all); err != nil {
		return err
	}
	if !report.Ready {
		return cli.ErrReported
	}
	return nil
}

// tryTick makes an agent that follows the kernel's tick, and samples nothing.
func tryTick(ctx context.Context) (hz int, err error) {
	if hz, err = attach.KernelHz(); err != nil {
		return 0, err
	}
	a, err := agent.New(ctx, agent.Options{Filter: true, Clock: attach.TickClock, Frequency: hz})
	if err != nil {
		return 0, err
	}
	return hz, a.Close()
}

// tryOffCPU makes an agent that could record off-CPU time, of no process.
func tryOffCPU(ctx context.Context) error {
	o := &events.Options{}
	o.Kinds[profile.OffCPU] = true
	a, err := agent.New(ctx, agent.Options{Filter: true, NoTime: true, Events: o})
	if err != nil {
		return err
	}
	return a.Close()
}

// tryEngines makes an agent that samples nothing, for the sake of its call engines. Guests connect
// to the socket that they know, so the trial has a socket of its own, which none knows.
func tryEngines(ctx context.Context) ([]profile.Choice, error) {
	dir, err := trialDir(os.TempDir(), "/run", "/dev/shm", "/")
	if err == nil {
		defer os.RemoveAll(dir)
	} else {
		dir = "/proc/self/none" // the engine that needs a socket says so, and the others are tried
	}
	a, err := agent.New(ctx, agent.Options{Filter: true, Calls: &engines.Options{GuestSocket: filepath.Join(dir,
		"guest.sock")}})
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

func writeReport(w io.Writer, r doctor.Report, asJSON, all bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.WriteText(w, cli.Columns(w), all)
}

// maxLibrary bounds the library of a VM in bytes; debug builds with symbols have 400 MB.
const maxLibrary = 1 << 30

// A library is what the file of a VM's library contains.
type library struct {
	image    vmruntime.Image
	segments elffile.Segments
	runtime  bridge.Runtime
	walked   error // why stacks cannot be walked on this machine
	probes   error // why what it compiles and unloads is not announced
	monitors error // why waits for monitors cannot be recorded
	parks    error // why those of java.util.concurrent cannot
}

// inspector returns what attaches to a VM of one of the runtimes as recording does, and lets go of
// it again. It may be called for several processes at once, and reads a library that many have
// once.
func inspector(root proc.Root, pool *proc.Pool, table []bridge.Runtime) doctor.JVMInspector {
	known := libraries{read: make(map[fileKey]*libraryRead)}
	return func(ctx context.Context, pid int, lib *proc.Mapping) (doctor.Inspection, error) {
		id, err := root.Identify(pid)
		if err != nil {
			return doctor.Inspection{}, err
		}
		l, err := known.get(ctx, root, pool, pid, lib, table)
		if err != nil {
			return doctor.Inspection{}, err
		}
		bias, err := l.segments.Bias(lib.Start, lib.Offset)
		if err != nil {
			return doctor.Inspection{}, err
		}
		mem, err := proc.OpenMemory(root, id, pool)
		if err != nil {
			return doctor.Inspection{}, err
		}
		defer mem.Close()
		vm, err := l.image.Attach(vmruntime.Target{Memory: mem, Bias: bias})
		if err != nil {
			return doctor.Inspection{}, err
		}
		return doctor.Inspection{VM: vm.Describe(), Supports: supports(l), Notes: vm.Notes()}, nil
	}
}

// libraries are those that were read, by file.
type libraries struct {
	mu   sync.Mutex
	read map[fileKey]*libraryRead
}

// A fileKey is a state of a file.
type fileKey struct {
	dev, inode      uint64
	size            int64
	modified, since unix.Timespec
	path            string // which says what kind of VM it is of
}

// A libraryRead is a library that is being read, and what became of it once done is closed.
type libraryRead struct {
	done chan struct{}
	library
	err error
}

// get returns the library behind a mapping of a process. The first process that has it pays for it;
// the others wait, and try themselves if that failed.
func (l *libraries) get(
	ctx context.Context, root proc.Root, pool *proc.Pool, pid int, lib *proc.Mapping, table []bridge.Runtime,
) (*library, error) {
	f, err := proc.Call(ctx, pool, pid, func() (*os.File, error) { return root.OpenMapped(pid, lib, maxLibrary) })
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at the library of the VM: %w", err)
	}
	key := fileKey{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim, lib.Path}
	for {
		l.mu.Lock()
		r, known := l.read[key]
		if !known {
			r = &libraryRead{done: make(chan struct{})}
			l.read[key] = r
		}
		l.mu.Unlock()
		if !known {
			r.library, r.err = proc.Call(ctx, pool, pid, func() (library, error) { return readLibrary(f, lib, table) })
			if r.err != nil {
				l.mu.Lock()
				delete(l.read, key)
				l.mu.Unlock()
			}
			close(r.done)
			return &r.library, r.err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err == nil {
			return &r.library, nil
		}
	}
}

// readLibrary runs on a worker of the pool: the file may lie on a file system that does not answer.
func readLibrary(f *os.File, lib *proc.Mapping, table []bridge.Runtime) (l library, err error) {
	vm, ok := bridge.Recognise(table, lib.Path)
	if !ok {
		return l, fmt.Errorf("%s is not a library of a VM", lib.Path)
	}
	file, err := elffile.OpenFile(f)
	if err != nil {
		return l, fmt.Errorf("read the library of the VM: %w", err)
	}
	image, err := vm.Image(file)
	if err != nil {
		return l, err
	}
	l = library{image: image, segments: file.Segments(), runtime: vm, walked: vm.Kernel.Usable()}
	if vm.StacksOnly {
		return l, nil
	}
	_, l.probes = vm.CodeSites(file)
	l.monitors, l.parks = eventprobes.LockProbes(file, f)
	return l, nil
}

// supports says what works with a VM that could be attached to.
func supports(l *library) []doctor.Support {
	java := doctor.Support{Feature: l.runtime.Language() + " frames", OK: l.walked == nil}
	if !java.OK {
		java.Reason = oneLine(l.walked)
	}
	if l.runtime.StacksOnly {
		return []doctor.Support{java}
	}
	inlining := java
	inlining.Feature = "inlining"
	live := doctor.Support{Feature: "live updates", OK: l.probes == nil}
	if !live.OK {
		live.Reason = oneLine(l.probes) + ": methods compiled while the agent runs may have no names"
	}
	monitors := doctor.Support{Feature: "waits for monitors", OK: l.monitors == nil}
	if !monitors.OK {
		monitors.Reason = oneLine(l.monitors)
	}
	parks := doctor.Support{Feature: "waits of java.util.concurrent", OK: l.parks == nil}
	if !parks.OK {
		parks.Reason = oneLine(l.parks)
	}
	return []doctor.Support{java, inlining, live, monitors, parks}
}

// oneLine is the text of an error that may be several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
