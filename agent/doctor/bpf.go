package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

func checkBPF(_ context.Context, env *Env) Result {
	const why = "The agent samples with BPF programs."
	err := env.LoadProgram()
	switch {
	case err == nil:
		return ok("a sampling program loads")
	case refused(err):
		return refusal(env, Missing, why)
	}
	return Result{Missing, err.Error(), why,
		"Boot a kernel with CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS, and with lockdown=integrity or none."}
}

func checkRingBuffer(_ context.Context, env *Env) Result {
	const why = "The agent receives samples through it."
	if err := env.CheckRing(env.Sys); err != nil {
		return Result{Missing, "its lock sleeps on this PREEMPT_RT kernel", why +
			" The interrupts that sample must not sleep: the machine " +
			"could hang.", "Boot Linux 6.12 or newer, a stable kernel with the fix of CVE-2024-50138, or one without " +
			"PREEMPT_RT."}
	}
	err := env.MakeRingBuffer()
	switch {
	case err == nil:
		return ok("works")
	case refused(err):
		return refusal(env, Missing, why)
	}
	return Result{Missing, err.Error(), why,
		"Raise the memory limit of the agent's cgroup, or boot Linux 6.1 or newer."}
}

// checkUprobeMulti checks for the links through which VMs announce compiled code.
func checkUprobeMulti(_ context.Context, env *Env) Result {
	const why = "Methods compiled while the agent runs may have no names: the agent cannot follow compilations."
	err := env.UprobeMulti()
	switch {
	case err == nil:
		return ok("works")
	case refused(err):
		return refusal(env, Limited, why)
	case !errors.Is(err, ebpf.ErrNotSupported):
		return Result{Limited, "trial failed: " + err.Error(), why, "Boot Linux 6.6 or newer, or run as root."}
	case has(env, cap.SYS_ADMIN):
		return ok("not in this kernel; single uprobes with CAP_SYS_ADMIN replace it")
	}
	return Result{Limited, "not in this kernel, and single uprobes need CAP_SYS_ADMIN", why,
		"Boot Linux 6.6 or newer, or run as root."}
}

// checkKernelMemory only informs.
func checkKernelMemory(_ context.Context, env *Env) Result {
	samples, events, err := env.Memory()
	if err != nil {
		return Result{Status: Info, Detail: "unknown: " + err.Error()}
	}
	const mb = 1e6
	return Result{Status: Info, Detail: fmt.Sprintf("about %.0f MB for samples of CPU time, %.0f MB with all events",
		float64(samples)/mb, float64(events)/mb)}
}

// checkMemlock only informs. Since Linux 5.11, BPF memory counts towards the cgroup, and the limit
// has no effect.
func checkMemlock(_ context.Context, env *Env) Result {
	limit, err := env.Memlock()
	switch {
	case err != nil:
		return Result{Status: Info, Detail: "unknown: " + err.Error()}
	case limit == math.MaxUint64:
		return Result{Status: Info, Detail: "unlimited"}
	}
	return Result{Status: Info, Detail: size(limit) + "; not used since Linux 5.11"}
}
