package doctor

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/host/privilege"
)

// grant is the remedy for missing capabilities: one command for all of them, since a second setcap
// undoes the first.
func grant(env *Env) string {
	return "Run as root, or grant the capabilities once: setcap " +
		"'cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep cap_syslog,cap_checkpoint_restore+ep' " +
		env.Program
}

// has reports whether a capability is in the effective set, for sure.
func has(env *Env, c cap.Value) bool {
	held, err := env.Capable(c)
	return err == nil && held
}

// need is the check of one capability. Without it the status is as given, for that reason.
func need(env *Env, c cap.Value, without Status, why string) Result {
	held, err := env.Capable(c)
	switch {
	case err != nil:
		return Result{Limited, "unknown: " + err.Error(), why, grant(env)}
	case held:
		return ok("held")
	}
	return Result{without, "not held", why, grant(env)}
}

// needOrAdmin is need for the two capabilities that were split off CAP_SYS_ADMIN, which still
// includes them.
func needOrAdmin(env *Env, c cap.Value, without Status, why string) Result {
	r := need(env, c, without, why)
	if r.Status != OK && has(env, cap.SYS_ADMIN) {
		return ok("not held, but included in CAP_SYS_ADMIN")
	}
	return r
}

func checkCapBPF(_ context.Context, env *Env) Result {
	return needOrAdmin(env, cap.BPF, Missing, "Loading BPF programs needs it.")
}

func checkCapPerfmon(_ context.Context, env *Env) Result {
	return needOrAdmin(env, cap.PERFMON, Missing, "Sampling all processes needs it.")
}

func checkCapPtrace(_ context.Context, env *Env) Result {
	return need(env, cap.SYS_PTRACE, Limited,
		"Other users' processes cannot be read: their JVMs have no Java frames, and their native code has no names.")
}

func checkCapReadSearch(_ context.Context, env *Env) Result {
	return need(env, cap.DAC_READ_SEARCH, Limited,
		"Programs and libraries that only their owner can read have no symbols.")
}

func checkCapSyslog(_ context.Context, env *Env) Result {
	r := need(env, cap.SYSLOG, Limited, "Without it the kernel hides the addresses of its functions.")
	if r.Status == Limited && kallsymsVisible(env) == nil {
		return ok("not held, and not needed: kernel addresses are visible to all")
	}
	return r
}

// checkCapCheckpointRestore: /proc/PID/map_files, through which files are read that were deleted or
// replaced since.
func checkCapCheckpointRestore(_ context.Context, env *Env) Result {
	return needOrAdmin(env, cap.CHECKPOINT_RESTORE, Limited,
		"Files that were replaced while in use cannot be read: after an upgrade of its JDK a running JVM has no "+
			"Java frames, and most of its profile is [unknown].")
}

// checkAfterStart shows which privileges record and serve keep once they have started.
func checkAfterStart(_ context.Context, env *Env) Result {
	plan := privilege.Make(env.privileges())
	detail := "record and serve keep " + cmp.Or(plan.String(), "no capabilities") + "; no_new_privs is set"
	if plan.Bounding {
		detail += "; the bounding set is emptied"
	} else {
		detail += "; the bounding set stays, because CAP_SETPCAP is not held"
	}
	if plan.Admin != "" {
		return Result{Info, detail, "CAP_SYS_ADMIN is kept: " + plan.Admin + ".", ""}
	}
	return ok(detail)
}

// checkLandlock says why there is no such sandbox.
func checkLandlock(context.Context, *Env) Result {
	return Result{Status: Info, Detail: "not used: under any ruleset the kernel forbids reading the memory of other " +
		"processes"}
}

// privileges is what the plan depends on.
func (e *Env) privileges() privilege.System {
	return privilege.System{Held: e.Capable, UprobeMulti: e.UprobeMulti, Without: e.Without, OpenEvent: func() error {
		cpus, err := e.CPUs()
		if err == nil {
			_, err = tryEvents(e, cpus)
		}
		return err
	}}
}

// refused reports whether err is the kernel saying that it will not, rather than that it cannot.
func refused(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

// refusal is the result of something that takes CAP_BPF and CAP_PERFMON and was refused. Libraries
// add guesses to such errors, which are left out: the lines on capabilities know.
func refusal(env *Env, status Status, why string) Result {
	return Result{status, unix.EPERM.Error(), why, privilegeRemedy(env)}
}

// privilegeRemedy says what to do about a refusal of something that takes CAP_BPF and CAP_PERFMON.
func privilegeRemedy(env *Env) string {
	admin := has(env, cap.SYS_ADMIN)
	if (admin || has(env, cap.BPF)) && (admin || has(env, cap.PERFMON)) {
		return "The capabilities are held, so something else refuses: a container's seccomp profile, a security " +
			"module, or a user namespace, where capabilities do not count. Run on the host, or allow bpf(2) and " +
			"perf_event_open(2) there."
	}
	return grant(env)
}
