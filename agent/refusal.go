package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// A RefusalError says that the kernel does not let this process profile, and what would change
// that.
type RefusalError struct {
	Missing []string // capabilities, as "CAP_BPF"
	Err     error    // what the kernel answered
}

func (e *RefusalError) Error() string {
	const remedy = "run as root, or grant the capabilities that vmprof-agent doctor lists"
	if len(e.Missing) == 0 {
		return fmt.Sprintf("the kernel refuses BPF programs although no capability is missing (%v): a security module "+
			"or a sandbox may forbid the bpf system call", e.Err)
	}
	return fmt.Sprintf("the kernel refuses BPF programs without %s: %s", strings.Join(e.Missing, " and "), remedy)
}

func (e *RefusalError) Unwrap() error { return e.Err }

// explainLoad adds the remedy to a refusal to load programs.
func explainLoad(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: needs a kernel of at least 6.1 with BTF (CONFIG_DEBUG_INFO_BTF; see vmprof-agent "+
			"doctor)", err)
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES):
		return err
	}
	missing := missingCapabilities()
	if len(missing) == 0 && errors.As(err, &verifier) && len(verifier.Log) > 1 {
		return err // it refuses this program from every user
	}
	return &RefusalError{Missing: missing, Err: err}
}

// missingCapabilities are those without which no program is loaded, as far as this process does not
// have them.
func missingCapabilities() (missing []string) {
	have := cap.GetProc()
	if ok, err := have.GetFlag(cap.Effective, cap.SYS_ADMIN); err == nil && ok {
		return nil
	}
	for _, c := range []cap.Value{cap.BPF, cap.PERFMON} {
		if ok, err := have.GetFlag(cap.Effective, c); err == nil && !ok {
			missing = append(missing, strings.ToUpper(c.String()))
		}
	}
	return missing
}
