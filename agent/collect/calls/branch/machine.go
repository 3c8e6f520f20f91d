package branch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

const devices = "sys/bus/event_source/devices"

// maxFile bounds how much is read of one kernel file, in bytes.
const maxFile = 64 << 10

var errNoPMU = errors.New("this machine has no performance counters (no CPU in /" + devices +
	"), like most virtual machines: " +
	"needs bare metal, or a hypervisor that exposes them")

// A pmu is the CPU's event source in /sys.
type pmu struct {
	root fs.FS
	dir  string
	typ  uint32
}

// findPMU returns the event source of the CPU; with two kinds of cores, that of the larger ones.
func findPMU(root fs.FS) (*pmu, error) {
	arm, err := fs.Glob(root, devices+"/armv[89]*")
	if err != nil {
		return nil, fmt.Errorf("look for performance counters: %w", err)
	}
	for _, dir := range append([]string{devices + "/cpu", devices + "/cpu_core"}, arm...) {
		p := &pmu{root: root, dir: dir}
		text, err := p.read("type")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		typ, parse := strconv.ParseUint(text, 10, 32)
		if err := errors.Join(err, parse); err != nil {
			return nil, fmt.Errorf("look for performance counters: %w", err)
		}
		p.typ = uint32(typ)
		return p, nil
	}
	return nil, errNoPMU
}

func (p *pmu) read(name string) (string, error) { return readFile(p.root, path.Join(p.dir, name)) }

// branches returns how many branches the CPU records, 0 if it records none.
func (p *pmu) branches() int {
	text, err := p.read("caps/branches")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(text)
	return max(n, 0)
}

// retiredCalls is the event of retired near calls. The kernel has no name for it.
func (p *pmu) retiredCalls() (attach.RawEvent, error) {
	vendor, err := vendor(p.root)
	if err != nil {
		return attach.RawEvent{}, err
	}
	if vendor != "GenuineIntel" {
		return attach.RawEvent{}, fmt.Errorf("only Intel CPUs count retired calls; this CPU is from %q", vendor)
	}
	// BR_INST_RETIRED.NEAR_CALL: event 0xc4, umask 0x02, with precise sampling (Intel SDM volume 3,
	// performance monitoring events; the same in all core designs since Nehalem). The kernel
	// defines in which bits they are.
	for name, want := range map[string]string{"event": "config:0-7", "umask": "config:8-15"} {
		got, err := p.read("format/" + name)
		if err != nil {
			return attach.RawEvent{}, fmt.Errorf("read format of events: %w", err)
		}
		// Later CPUs have more bits of a umask, further up.
		if first, _, _ := strings.Cut(got, ","); first != want {
			return attach.RawEvent{}, fmt.Errorf("format of events: %s is at %q, not %q", name, got, want)
		}
	}
	return attach.RawEvent{Type: p.typ, Config: 0xc4 | 0x02<<8}, nil
}

// vendor returns who made the CPU, as x86 kernels report it; other kernels have no such line.
func vendor(root fs.FS) (string, error) {
	text, err := readFile(root, "proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("read the CPU's name: %w", err)
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "vendor_id" {
			return strings.TrimSpace(value), nil
		}
	}
	return "unknown", nil
}

// readFile reads the first maxFile bytes.
func readFile(root fs.FS, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(b)), err
}
