package bpf

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// spareScratches is SPARES of scratch.bpf.h.
const spareScratches = 4

// onlinePath is replaced by tests.
var onlinePath = "/sys/devices/system/cpu/online"

// setScratches makes room for the working memory of CPUs, about a third of a megabyte each.
// Machines may have many more CPUs than are online: there is room for those up to the last online
// one. CPUs that come online later share four more rooms (spares); what one of them would do while
// another one uses its room is dropped and counted.
func setScratches(spec *ebpf.CollectionSpec) error {
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	list, err := os.ReadFile(onlinePath)
	if err != nil {
		list = nil // a kernel without CPU hotplug
	}
	cpus := lastOnline(string(list), possible)
	spares := uint32(0)
	if cpus < uint32(possible) || preemptible(spec) {
		spares = spareScratches
	}
	spec.Maps["scratches"].MaxEntries = cpus + spares
	return setFirstSpare(spec, cpus)
}

func setFirstSpare(spec *ebpf.CollectionSpec, cpus uint32) error {
	if err := spec.Variables["first_spare"].Set(cpus); err != nil {
		return fmt.Errorf("set constants: %w", err)
	}
	return nil
}

// preemptible reports whether programs of an object can lose their CPU, and take spares then:
// uprobes.
func preemptible(spec *ebpf.CollectionSpec) bool {
	for _, p := range spec.Programs {
		if p.Type == ebpf.Kprobe {
			return true
		}
	}
	return false
}

// lastOnline is how many CPUs there are up to the last online one, given the kernel's list of them,
// "0-3,5", and how many are possible.
func lastOnline(online string, possible int) uint32 {
	online = strings.TrimSpace(online)
	last, err := strconv.Atoi(online[strings.LastIndexAny(online, "-,")+1:])
	if err != nil || last < 0 || last >= possible {
		return uint32(possible)
	}
	return uint32(last + 1)
}

// Memory is about how many bytes the maps of the agent take in the kernel, as they are loaded now:
// for samples of CPU time, and with all events.
func Memory() (samples, events uint64, err error) {
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, 0, fmt.Errorf("count CPUs: %w", err)
	}
	shared := map[string]bool{}
	add := func(load func() (*ebpf.CollectionSpec, error)) (n uint64) {
		spec, loadErr := load()
		if loadErr == nil && spec.Maps["scratches"] != nil {
			loadErr = setScratches(spec)
		}
		if loadErr != nil {
			err = loadErr
			return 0
		}
		for name, m := range spec.Maps {
			if name != "scratches" && shared[name] {
				continue
			}
			shared[name] = true
			switch size := uint64(m.KeySize+m.ValueSize) * uint64(m.MaxEntries); {
			case m.Type == ebpf.RingBuf:
				n += uint64(m.MaxEntries)
			case m.Flags&unix.BPF_F_NO_PREALLOC != 0: // grows with what is in it
			case strings.Contains(m.Type.String(), "PerCPU"):
				n += size * uint64(possible)
			default:
				n += size
			}
		}
		return n
	}
	samples = add(LoadProfile) + add(LoadCodeMap)
	events = samples + add(LoadProbe) + add(LoadFault) + add(LoadOffCPU)
	return samples, events, err
}
