package semaphore

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// tracerOf returns the pid of the debugger that is attached to a process, 0 if there is none. A debugger with a
// breakpoint on the probe counts the semaphore up.
func tracerOf(root proc.Root, pid int) (int, error) {
	const enough = 4 << 10 // TracerPid is the eighth line; the first, with the name, has at most 70 bytes
	f, err := os.Open(filepath.Join(root.String(), strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("look for a tracer of process %d: %w", pid, proc.ErrGone)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, enough))
	if err != nil {
		return 0, fmt.Errorf("look for a tracer of process %d: %w", pid, proc.ErrGone)
	}
	return parseTracer(b)
}

// parseTracer reads /proc/PID/status. The name of a process cannot forge a line: the kernel escapes newlines in it.
func parseTracer(status []byte) (int, error) {
	for line := range bytes.Lines(status) {
		value, ok := bytes.CutPrefix(line, []byte("TracerPid:"))
		if !ok {
			continue
		}
		tracer, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 22)
		if err != nil {
			return 0, fmt.Errorf("tracer %.20q: %w", value, proc.ErrMalformed)
		}
		return int(tracer), nil
	}
	return 0, fmt.Errorf("status without a tracer: %w", proc.ErrMalformed)
}
