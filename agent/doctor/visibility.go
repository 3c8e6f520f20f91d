package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// errHidden: the kernel shows zeros in place of its addresses.
var errHidden = errors.New("addresses are hidden")

// kallsymsVisible returns errHidden if all of the first symbols are at zero. A few really are:
// per-CPU variables.
func kallsymsVisible(env *Env) error {
	const lines = 10000
	f, err := os.Open(filepath.Join(env.Proc.String(), "kallsyms"))
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for range lines {
		if !s.Scan() {
			break
		}
		address, _, _ := bytes.Cut(s.Bytes(), []byte(" "))
		if len(bytes.Trim(address, "0")) > 0 {
			return nil
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return errHidden
}

func checkKallsyms(_ context.Context, env *Env) Result {
	const why = "Kernel functions have no names in the profile."
	err := kallsymsVisible(env)
	switch {
	case err == nil:
		return ok("visible")
	case !errors.Is(err, errHidden):
		return Result{Limited, err.Error(), why, "Boot a kernel with CONFIG_KALLSYMS, and mount /proc."}
	}
	if restrict, err := sysctl(env, "kernel/kptr_restrict"); err == nil && restrict >= 2 {
		return Result{Limited, fmt.Sprintf("hidden from everybody, because kptr_restrict is %d", restrict), why,
			"Show them to privileged processes: sysctl -w kernel.kptr_restrict=1"}
	}
	return Result{Limited, "hidden from this process", why, grant(env)}
}

// checkPtraceScope: reading a process's memory counts as attaching to it.
func checkPtraceScope(_ context.Context, env *Env) Result {
	scope, err := sysctl(env, "kernel/yama/ptrace_scope")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("Yama is not active")
	case err != nil:
		return Result{Status: Info, Detail: "unknown: " + err.Error()}
	case scope == 0, scope <= 2 && has(env, cap.SYS_PTRACE):
		return ok(fmt.Sprint(scope))
	case scope <= 2:
		return Result{Limited, fmt.Sprint(scope),
			"Without CAP_SYS_PTRACE not even the agent's own user's processes can be read: no JVM has Java frames.",
			grant(env)}
	}
	return Result{Limited, fmt.Sprint(scope), "Nobody can read the memory of other processes: no JVM has Java frames.",
		"Set kernel.yama.ptrace_scope to 2 or less at boot. It cannot be lowered from 3 later."}
}

// checkHidepid looks for the mount option that hides other users' processes.
func checkHidepid(_ context.Context, env *Env) Result {
	b, err := os.ReadFile(filepath.Join(env.Proc.String(), "self/mounts"))
	if err != nil {
		return Result{Status: Info, Detail: "unknown: " + err.Error()}
	}
	mode := ""
	for line := range strings.Lines(string(b)) {
		// device, mount point, type, options: the last mount on a mount point is the one that
		// shows.
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != env.Proc.String() {
			continue
		}
		mode = ""
		for option := range strings.SplitSeq(fields[3], ",") {
			if value, found := strings.CutPrefix(option, "hidepid="); found {
				mode = value
			}
		}
	}
	switch mode {
	case "", "0", "off":
		return ok("off")
	}
	if has(env, cap.SYS_PTRACE) {
		return ok(mode + ", with CAP_SYS_PTRACE")
	}
	return Result{Limited, mode, "Other users' processes are hidden, so they have no names in the profile.", grant(env)}
}
