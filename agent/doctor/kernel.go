package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The oldest kernel that is supported: what it has and older ones lack are BPF cookies, bpf_loop,
// sleepable uprobes and hash maps without preallocation in perf_event programs.
const oldestMajor, oldestMinor = 6, 1

func checkKernel(_ context.Context, env *Env) Result {
	release, _, err := env.Uname()
	if err != nil {
		return Result{Limited, err.Error(), "The kernel's version is unknown.", "Linux 6.1 or newer is supported."}
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return Result{Limited, fmt.Sprintf("%q has no version", release),
			"The kernel's version is unknown.", "Linux 6.1 or newer is supported."}
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return Result{Missing, release,
			"The BPF programs use features of Linux 6.1.",
			"Boot Linux 6.1 or newer: Debian 12, Ubuntu 24.04 and RHEL 10 have it."}
	}
	return ok(release)
}

func checkArchitecture(_ context.Context, env *Env) Result {
	_, machine, err := env.Uname()
	switch {
	case err != nil:
		return Result{Limited, err.Error(), "The machine's architecture is unknown.", "x86_64 is supported."}
	case machine == "x86_64":
		return ok(machine)
	case machine == "aarch64":
		return Result{Limited, machine,
			"On arm64, Java stacks are truncated and Python processes show native frames only.",
			"Native and kernel frames are complete. For Java and Python frames, profile on x86_64."}
	}
	return Result{Missing, machine, "There are no BPF programs for this architecture.", "Profile on x86_64 or aarch64."}
}

func checkBTF(_ context.Context, env *Env) Result {
	path := filepath.Join(env.Sys, "kernel/btf/vmlinux")
	result := Result{Missing, "", "The BPF programs locate the fields of kernel structures with it.",
		"Boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, such as a distribution's kernel, and mount /sys."}
	f, err := os.Open(path)
	if err != nil {
		result.Detail = err.Error()
		return result
	}
	defer f.Close()
	magic := make([]byte, 2)
	if _, err := f.Read(magic); err != nil {
		result.Detail = err.Error()
		return result
	}
	// BTF_MAGIC of include/uapi/linux/btf.h, in the byte order of the machine.
	if !bytes.Equal(magic, []byte{0x9f, 0xeb}) {
		result.Detail = fmt.Sprintf("%s begins with %x", path, magic)
		return result
	}
	return ok("present")
}

// checkLockdown only informs: what lockdown forbids the agent, if anything, shows where that is
// tried.
func checkLockdown(_ context.Context, env *Env) Result {
	// The LSM lists its modes and marks the active one: "none [integrity] confidentiality".
	b, err := os.ReadFile(filepath.Join(env.Sys, "kernel/security/lockdown"))
	if errors.Is(err, fs.ErrNotExist) {
		return Result{Status: Info, Detail: "unknown: securityfs is not mounted, or the kernel has no lockdown"}
	}
	if err != nil {
		return Result{Status: Info, Detail: "unknown: " + err.Error()}
	}
	_, mode, _ := strings.Cut(string(b), "[")
	mode, _, _ = strings.Cut(mode, "]")
	switch mode {
	case "integrity":
		return Result{Status: Info, Detail: "integrity: no effect on the agent"}
	case "confidentiality":
		return Result{Info, "confidentiality",
			"BPF programs must not read kernel memory in this mode, but the agent's programs need to.",
			"Boot with lockdown=integrity if the line on BPF programs says missing."}
	}
	return Result{Status: Info, Detail: mode}
}
