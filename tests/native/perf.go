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
	"time"
)

// recordByPerf records a process with copies of its stacks, and returns the stacks that perf script
// unwinds.
func recordByPerf(ctx context.Context, pid int, length time.Duration, dir string, names aliases) (recorded, error) {
	data := filepath.Join(dir, "perf.data")
	record := exec.CommandContext(ctx, "perf", "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(rate), "--call-graph",
		"dwarf,32768", "-p", strconv.Itoa(pid), "-o", data, "--", "sleep", fmt.Sprintf("%.0f", length.Seconds()))
	if out, err := record.CombinedOutput(); err != nil {
		return recorded{}, fmt.Errorf("perf record: %w\n%s", err, out)
	}
	script := exec.CommandContext(ctx, "perf", "script", "-i", data, "--no-inline", "--no-demangle", "-F", "ip,sym")
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
	lines := bufio.NewScanner(script)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			if len(stack) > 0 {
				r.add(stack, 1)
			}
			stack = nil
			continue
		}
		ip, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return r, fmt.Errorf("perf script: a frame %q", lines.Text())
		}
		if ip < kernelSpace {
			stack = append(stack, names.of(strings.Join(fields[1:], " ")))
		}
	}
	if len(stack) > 0 {
		r.add(stack, 1)
	}
	return r, lines.Err()
}
