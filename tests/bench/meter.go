package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A meter reads how often a BPF program ran and how long, as the kernel's statistics of it say
// (kernel 5.8; they must be switched on), and what it counted itself.
type meter struct {
	program *ebpf.Program
	objects *bpf.Objects // only its counters; nil of a program that counts nothing
}

// Names in bpf/sample/profile.bpf.c.
const (
	tickName     = "tick"
	countersName = "counters"
	ticksName    = "tick_counts"
)

// agentMeter finds the sampling program among those that the process holds: others may run the same
// one.
func agentMeter(pid int) (*meter, error) {
	ids, err := heldPrograms(fmt.Sprintf("/proc/%d/fdinfo", pid))
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return nil, fmt.Errorf("open BPF program %d: %w", id, err)
		}
		info, err := program.Info()
		if err != nil {
			program.Close()
			return nil, fmt.Errorf("look at BPF program %d: %w", id, err)
		}
		if info.Name != tickName {
			program.Close()
			continue
		}
		m := &meter{program: program}
		if m.objects, err = countersOf(info); err != nil {
			return nil, errors.Join(err, m.close())
		}
		return m, nil
	}
	return nil, fmt.Errorf("process %d holds no BPF program %q", pid, tickName)
}

// heldPrograms returns the ids of the BPF programs that are open in a process, whose fdinfo
// directory this is.
func heldPrograms(fdinfo string) ([]ebpf.ProgramID, error) {
	entries, err := os.ReadDir(fdinfo)
	if err != nil {
		return nil, fmt.Errorf("look for BPF programs: %w", err)
	}
	var ids []ebpf.ProgramID
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(fdinfo, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("look for BPF programs: %w", err)
		}
		if id, ok := programID(strings.NewReader(string(text))); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// programID reads the fdinfo of one file. A link has the program's id too, without its tag.
func programID(fdinfo io.Reader) (id ebpf.ProgramID, ok bool) {
	fields := map[string]string{}
	for lines := bufio.NewScanner(fdinfo); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		fields[key] = strings.TrimSpace(value)
	}
	n, err := strconv.ParseUint(fields["prog_id"], 10, 32)
	if _, link := fields["link_type"]; link || err != nil {
		return 0, false
	}
	return ebpf.ProgramID(n), true
}

// countersOf opens the counters that a sampling program counts in.
func countersOf(info *ebpf.ProgramInfo) (*bpf.Objects, error) {
	var o bpf.Objects
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("open BPF map %d: %w", id, err)
		}
		mapInfo, err := m.Info()
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("look at BPF map %d: %w", id, err)
		}
		switch mapInfo.Name {
		case countersName:
			o.Counters = m
		case ticksName:
			o.TickCounts = m
		default:
			m.Close()
		}
	}
	if o.Counters == nil || o.TickCounts == nil {
		return nil, fmt.Errorf("the BPF program %q has no map %q or %q", info.Name, countersName, ticksName)
	}
	return &o, nil
}

// A reading is what a program did since it was loaded, or a difference of two of those.
type reading struct {
	runs   uint64
	time   time.Duration // in the program, two reads of the clock included
	counts bpf.Counts
}

func (m *meter) read() (reading, error) {
	stats, err := m.program.Stats()
	if err != nil {
		return reading{}, fmt.Errorf("read the kernel's statistics of a BPF program: %w", err)
	}
	r := reading{runs: stats.RunCount, time: stats.Runtime}
	if m.objects != nil {
		if r.counts, err = m.objects.ReadCounts(); err != nil {
			return reading{}, err
		}
	}
	return r, nil
}

// during returns what the program did while something else was done.
func (m *meter) during(do func() error) (reading, error) {
	before, err := m.read()
	if err != nil {
		return reading{}, err
	}
	if err := do(); err != nil {
		return reading{}, err
	}
	after, err := m.read()
	if err != nil {
		return reading{}, err
	}
	return after.minus(before), nil
}

func (m *meter) close() error {
	err := m.program.Close()
	if m.objects != nil {
		err = errors.Join(err, m.objects.Counters.Close(), m.objects.TickCounts.Close())
	}
	return err
}

func (r reading) minus(before reading) reading {
	r.runs -= before.runs
	r.time -= before.time
	for i := range r.counts {
		r.counts[i] -= before.counts[i]
	}
	return r
}
