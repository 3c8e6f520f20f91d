package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

const lowerParanoid = "Lower it: sysctl -w kernel.perf_event_paranoid=2 (permanently: in /etc/sysctl.d), or run " +
	"as root."

// sysctl reads a setting of /proc/sys that is a number.
func sysctl(env *Env, name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(env.Proc.String(), "sys", name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// checkParanoid knows the one value that matters. Up to 2 the kernel asks for CAP_PERFMON; from 3
// on, which is a patch of Debian and Ubuntu, for CAP_SYS_ADMIN. Kernels without that patch take 3
// for 2, so what they do decides.
func checkParanoid(_ context.Context, env *Env) Result {
	level, err := sysctl(env, "kernel/perf_event_paranoid")
	if err != nil {
		return Result{Missing, err.Error(), "Sampling needs perf events.",
			"Boot a kernel with CONFIG_PERF_EVENTS, and mount /proc."}
	}
	detail := strconv.Itoa(level)
	switch {
	case level <= 2:
		return ok(detail)
	case has(env, cap.SYS_ADMIN):
		return ok(detail + ", with CAP_SYS_ADMIN")
	case env.OpenEvent(0) == nil:
		return ok(detail + ", which this kernel treats as 2")
	}
	return Result{Missing, detail, "From 3 on, sampling needs CAP_SYS_ADMIN: CAP_PERFMON does not suffice.",
		lowerParanoid}
}

// checkSampling opens the event that would be used on every CPU.
func checkSampling(_ context.Context, env *Env) Result {
	const why = "Nothing is sampled on a CPU without an event."
	cpus, err := env.CPUs()
	if err != nil {
		return Result{Missing, err.Error(), why, "Mount /sys, which lists the CPUs."}
	}
	online, err := tryEvents(env, cpus)
	switch {
	case err == nil:
		return ok("cpu-clock, on " + count(online, "CPU", "CPUs"))
	case !refused(err):
		return Result{Missing, err.Error(), why, "Boot a kernel with CONFIG_PERF_EVENTS."}
	}
	if level, paranoidErr := sysctl(env, "kernel/perf_event_paranoid"); paranoidErr == nil && level > 2 {
		return Result{Missing, err.Error(), why, lowerParanoid}
	}
	return Result{Missing, err.Error(), why, privilegeRemedy(env)}
}

// tryEvents opens the event on all CPUs that are online and returns their number.
func tryEvents(env *Env, cpus int) (online int, err error) {
	for cpu := range cpus {
		err := env.OpenEvent(cpu)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("CPU %d: %w", cpu, err)
		}
		online++
	}
	if online == 0 {
		return 0, errors.New("no CPU accepts the event")
	}
	return online, nil
}
