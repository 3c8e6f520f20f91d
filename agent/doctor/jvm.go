package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// A JVMInspector tries out what the agent can do with a JVM or an interpreter, from outside, as
// recording does; lib is the code of its VM's library. The error says why only native frames are
// supported; the rest of the Inspection may be known even so. It bounds its own time: what the VM
// can delay, it reads through a proc.Pool.
type JVMInspector func(ctx context.Context, pid int, lib *proc.Mapping) (Inspection, error)

// An Inspection is what was found out about a JVM. Its text comes from the JVM and may be hostile.
type Inspection struct {
	VM       string    `json:"vm,omitempty"` // name and version, if known
	Supports []Support `json:"supports,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // what a reader of its profile must know, whole sentences
}

// A Support is one thing that the agent can do with a JVM, or cannot.
type Support struct {
	Feature string `json:"feature"` // Java frames, inlining, live updates, kinds of waits
	OK      bool   `json:"ok"`
	Reason  string `json:"reason,omitempty"` // why not
}

// A JVM is one that runs, or a VM of another language.
type JVM struct {
	kind, language string // "JVM" and "Java", "CPython" and "Python"

	PID    int    `json:"pid"`
	User   string `json:"user"`
	Comm   string `json:"comm"`
	Status Status `json:"status"` // OK, Limited, or Info if nobody inspected it
	Inspection
	Reason string `json:"reason,omitempty"` // why only native frames are supported
}

// findJVMs looks at all processes. Those that cannot be looked at are counted.
func findJVMs(ctx context.Context, env *Env) ([]*JVM, Result) {
	pids, err := env.Proc.PIDs()
	if err != nil {
		return nil, Result{Missing, err.Error(), "The agent finds processes there.", "Mount /proc."}
	}
	var (
		jvms                   = make([]*JVM, len(pids))
		looked, denied, failed atomic.Int64
		work                   sync.WaitGroup
		next                   atomic.Int64
	)
	for range atOnce * runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(pids)); i = next.Add(1) - 1 {
				j, err := look(ctx, env, pids[i])
				switch {
				case err == nil:
					looked.Add(1)
				case errors.Is(err, errNoCode), errors.Is(err, proc.ErrGone):
				case errors.Is(err, proc.ErrDenied):
					denied.Add(1)
				default:
					failed.Add(1)
				}
				jvms[i] = j
			}
		})
	}
	work.Wait()
	jvms = slices.DeleteFunc(jvms, func(j *JVM) bool { return j == nil })
	return jvms, processes(env, jvms, int(looked.Load()), int(denied.Load()), int(failed.Load()))
}

// atOnce is how many processes are looked at for each CPU: most of the time is waiting for the
// kernel and for workers.
const atOnce = 2

// errNoCode is the error for kernel threads and zombies, which have no code that could be mapped.
var errNoCode = errors.New("no code")

// look looks at a process. It returns nil if that is no VM, or has ended.
func look(ctx context.Context, env *Env, pid int) (*JVM, error) {
	if stat, err := env.Proc.Stat(pid); err != nil || stat.Kernel() || stat.Zombie() {
		return nil, errNoCode
	}
	lib, err := findLibrary(ctx, env, pid)
	if err != nil || lib == nil {
		return nil, err
	}
	return inspect(ctx, env, pid, lib), nil
}

// kindJVM is the kind of all JVMs; other VMs have the name of their runtime.
const kindJVM = "JVM"

// processes says how many JVMs and other processes there are, and how many could not be looked at.
func processes(env *Env, vms []*JVM, looked, denied, failed int) Result {
	kinds := []string{kindJVM}
	number := map[string]int{}
	for _, j := range vms {
		if number[j.kind]++; !slices.Contains(kinds, j.kind) {
			kinds = append(kinds, j.kind)
		}
	}
	slices.Sort(kinds[1:])
	found := ""
	for i, kind := range kinds {
		if i > 0 {
			found += " and "
		}
		found += countOf(number[kind], kind)
	}
	found += " in " + count(looked, "process", "processes")
	const unnamed = "Their code has no names, and JVMs among them have no Java frames."
	switch {
	case denied > 0 && has(env, cap.SYS_PTRACE):
		return Result{Status: Info, Detail: fmt.Sprintf("%s; access to %d more denied, in spite of CAP_SYS_PTRACE",
			found, denied),
			Why: "A security module or a user namespace protects them. " + unnamed}
	case denied > 0:
		return Result{Limited, fmt.Sprintf("%s; access to %d more denied", found, denied), unnamed, grant(env)}
	case failed > 0:
		return Result{Limited, fmt.Sprintf("%s; %d more did not answer", found, failed),
			unnamed, "Look for hanging processes: ps often shows them in state D."}
	}
	return ok(found)
}

// countOf is "1 JVM", "2 JVMs", "2 CPython processes".
func countOf(n int, kind string) string {
	if kind == kindJVM {
		return count(n, kind, kind+"s")
	}
	return count(n, kind+" process", kind+" processes")
}

// findLibrary returns the code of the library of the process's VM, nil if it has none.
func findLibrary(ctx context.Context, env *Env, pid int) (*proc.Mapping, error) {
	maps, err := proc.Call(ctx, env.Pool, pid, func() (proc.Maps, error) {
		return env.Proc.Maps(pid, func(m *proc.Mapping) bool {
			_, ok := bridge.Recognise(env.Runtimes, m.Path)
			return ok && m.Exec && m.IsFile()
		})
	})
	if err != nil {
		return nil, err
	}
	return bridge.FindLibrary(env.Runtimes, maps), nil
}

// inspect asks what the agent makes of a JVM. It returns nil if the JVM has ended.
func inspect(ctx context.Context, env *Env, pid int, lib *proc.Mapping) *JVM {
	j := &JVM{PID: pid, Status: Info, kind: kindJVM, language: "Java"}
	if vm, ok := bridge.Recognise(env.Runtimes, lib.Path); ok && vm.Language() != j.language {
		j.kind, j.language = vm.Title(), vm.Language()
	}
	j.Comm, _ = env.Proc.Comm(pid) // "" if it is gone by now
	if status, err := env.Proc.Status(pid); err == nil {
		j.User = env.UserName(status.UID)
	}
	if env.Inspect == nil {
		return j
	}
	var err error
	j.Status = OK
	err = proc.Catch(func() (err error) {
		j.Inspection, err = env.Inspect(ctx, pid, lib)
		return err
	})
	for _, s := range j.Supports {
		if !s.OK {
			j.Status = Limited
		}
	}
	switch {
	case errors.Is(err, proc.ErrGone):
		return nil
	case err != nil:
		j.Status, j.Reason = Limited, err.Error()
	}
	return j
}

// maxPIDs is how many processes a line names.
const maxPIDs = 5

// pidList names processes; the first of many.
func pidList(pids []int, all bool) string {
	var b strings.Builder
	for i, pid := range pids {
		if i == maxPIDs && !all {
			fmt.Fprintf(&b, " and %d more", len(pids)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, pid)
	}
	return b.String()
}

// findings are the lines of JVMs. Those that are alike share one, in the place of the first, unless
// a line for each is wanted.
func findings(jvms []JVM, all bool) (list []Finding) {
	type line struct {
		kind string
		Result
	}
	alike := make(map[line]int)
	var pids [][]int
	var kinds []string
	for _, j := range jvms {
		f := j.finding()
		at, known := alike[line{j.kind, f.Result}]
		if !known || all {
			at = len(list)
			alike[line{j.kind, f.Result}] = at
			list, pids, kinds = append(list, f), append(pids, nil), append(kinds, j.kind)
		}
		pids[at] = append(pids[at], j.PID)
	}
	for i := range list {
		if n := len(pids[i]); n > 1 {
			list[i].Title = countOf(n, kinds[i])
			list[i].Detail += "; pids " + pidList(pids[i], false)
		}
	}
	return list
}

// finding puts a JVM into the form of the other lines, its notes apart.
func (j JVM) finding() Finding {
	detail := []string{j.Comm + ", user " + j.User}
	if j.VM != "" {
		detail = append(detail, j.VM)
	}
	var supported, unsupported []string
	for _, s := range j.Supports {
		if s.OK {
			supported = append(supported, s.Feature)
		} else {
			unsupported = append(unsupported, s.Feature+" ("+s.Reason+")")
		}
	}
	why := ""
	switch {
	case j.Reason != "":
		detail = append(detail, "native frames only")
		why = "No " + j.language + " frames: " + j.Reason + "."
	case len(unsupported) > 0:
		why = "Without " + strings.Join(unsupported, ", ") + "."
	}
	if j.Reason == "" && len(supported) > 0 {
		detail = append(detail, strings.Join(supported, ", "))
	}
	return Finding{
		Title:  fmt.Sprintf("%s %d", j.kind, j.PID),
		Result: Result{Status: j.Status, Detail: strings.Join(detail, "; "), Why: why},
	}
}
