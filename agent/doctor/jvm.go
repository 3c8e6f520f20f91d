package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/runtimes/bridge"
)

// A JVMInspector tries out what the agent can do with a JVM, from outside, as recording does; lib is the code of its
// VM's library. The error says why only native frames are supported; the rest of the Inspection may be known even so. It
// bounds its own time: what the JVM can delay, it reads through a proc.Pool.
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

// A JVM is one that runs.
type JVM struct {
	PID    int    `json:"pid"`
	User   string `json:"user"`
	Comm   string `json:"comm"`
	Status Status `json:"status"` // OK, Limited, or Info if nobody inspected it
	Inspection
	Reason string `json:"reason,omitempty"` // why only native frames are supported
}

// findJVMs looks at all processes. Those that cannot be looked at are counted.
func findJVMs(ctx context.Context, env *Env) ([]JVM, Result) {
	pids, err := env.Proc.PIDs()
	if err != nil {
		return nil, Result{Missing, err.Error(), "The agent finds processes there.", "Mount /proc."}
	}
	var jvms []JVM
	looked, denied, failed := 0, 0, 0
	for _, pid := range pids {
		// Kernel threads and zombies have no code that could be mapped.
		if stat, err := env.Proc.Stat(pid); err != nil || stat.Kernel() || stat.Zombie() {
			continue
		}
		lib, err := findLibrary(ctx, env, pid)
		switch {
		case err == nil:
			looked++
		case errors.Is(err, proc.ErrDenied):
			denied++
		case !errors.Is(err, proc.ErrGone):
			failed++
		}
		if lib == nil {
			continue
		}
		if j := inspect(ctx, env, pid, lib); j != nil {
			jvms = append(jvms, *j)
		}
	}
	found := count(len(jvms), "JVM", "JVMs") + " in " + count(looked, "process", "processes")
	const unnamed = "Their code has no names, and JVMs among them have no Java frames."
	switch {
	case denied > 0 && has(env, cap.SYS_PTRACE):
		return jvms, Result{Status: Info, Detail: fmt.Sprintf("%s; access to %d more denied, in spite of CAP_SYS_PTRACE", found, denied),
			Why: "A security module or a user namespace protects them. " + unnamed}
	case denied > 0:
		return jvms, Result{Limited, fmt.Sprintf("%s; access to %d more denied", found, denied), unnamed, grant(env)}
	case failed > 0:
		return jvms, Result{Limited, fmt.Sprintf("%s; %d more did not answer", found, failed),
			unnamed, "Look for hanging processes: ps often shows them in state D."}
	}
	return jvms, ok(found)
}

// findLibrary returns the code of the library of the process's VM, nil if it has none.
func findLibrary(ctx context.Context, env *Env, pid int) (*proc.Mapping, error) {
	maps, err := proc.Call(ctx, env.Pool, pid, func() (proc.Maps, error) {
		return env.Proc.Maps(pid, func(m *proc.Mapping) bool {
			_, ok := bridge.Recognise(env.Runtimes, m.Path)
			return ok && m.Exec && m.IsFile()
		})
	})
	if err != nil || len(maps) == 0 {
		return nil, err
	}
	return &maps[0], nil
}

// inspect asks what the agent makes of a JVM. It returns nil for one that ended meanwhile.
func inspect(ctx context.Context, env *Env, pid int, lib *proc.Mapping) *JVM {
	j := &JVM{PID: pid, Status: Info}
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
		why = "No Java frames: " + j.Reason + "."
	case len(unsupported) > 0:
		why = "Without " + strings.Join(unsupported, ", ") + "."
	}
	if j.Reason == "" && len(supported) > 0 {
		detail = append(detail, strings.Join(supported, ", "))
	}
	return Finding{
		Title:  fmt.Sprintf("JVM %d", j.PID),
		Result: Result{Status: j.Status, Detail: strings.Join(detail, "; "), Why: why},
	}
}
