package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// recordByPerf records with copies of stacks, and returns the stacks of a process that perf script
// unwinds. It records the whole machine, as an event of one process starts anew at each switch: it has
// fewer samples of one that waits often.
func recordByPerf(ctx context.Context, pid int, seconds int, dir string, names aliases) (recorded, error) {
	data := filepath.Join(dir, "perf.data")
	record := exec.CommandContext(ctx, "perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", strconv.Itoa(rate), "--call-graph",
		"dwarf,32768", "-o", data, "--", "sleep", strconv.Itoa(seconds))
	if out, err := record.CombinedOutput(); err != nil {
		return recorded{}, fmt.Errorf("perf record: %w\n%s", err, out)
	}
	script := exec.CommandContext(ctx, "perf", "script", "-i", data, "--pid", strconv.Itoa(pid), "--no-inline", "--no-demangle", "-F", "ip,sym")
	var failed bytes.Buffer
	script.Stderr = &failed
	out, err := script.Output()
	if err != nil {
		return recorded{}, fmt.Errorf("perf script: %w\n%s", err, failed.String())
	}
	return readScript(bytes.NewReader(out), names)
}

// kernelSpace is where addresses of the kernel begin.
const kernelSpace = 1 << 63

// readScript reads what perf script prints: a line for each frame, innermost first, and an empty
// one behind each stack.
func readScript(script io.Reader, names aliases) (recorded, error) {
	r := newRecorded()
	var stack []string
	inKernel := false
	lines := bufio.NewScanner(script)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			r.addPerfs(stack, inKernel)
			stack, inKernel = nil, false
			continue
		}
		ip, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return r, fmt.Errorf("perf script: a frame %q", lines.Text())
		}
		if inKernel = inKernel || ip >= kernelSpace; ip < kernelSpace {
			stack = append(stack, names.one(strings.Join(fields[1:], " ")))
		}
	}
	r.addPerfs(stack, inKernel)
	return r, lines.Err()
}

// addPerfs adds a stack of perf, which does not say that one is cut: those of a frame without a name
// are, as nothing else begins a thread.
func (r *recorded) addPerfs(stack []string, inKernel bool) {
	switch {
	case len(stack) == 0: // the kernel's
	case len(stack) == 1 && stack[0] == "?":
		r.samples++
		r.cut++
	default:
		r.add(stack, inKernel, 1)
	}
}
