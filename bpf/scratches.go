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

const onlinePath = "/sys/devices/system/cpu/online"

// setScratches makes room for the working memory of CPUs, about a third of a megabyte each. Machines may
// have many more CPUs than are online: there is room for those up to the last online one, and for an eighth more. What runs on CPUs beyond that, which
// have come online since, is dropped and counted.
func setScratches(spec *ebpf.CollectionSpec) error {
	cpus, err := scratchCPUs()
	if err != nil {
		return err
	}
	spec.Maps["scratches"].MaxEntries = cpus
	if v := spec.Variables["first_spare"]; v != nil {
		spec.Maps["scratches"].MaxEntries += spareScratches
		if err := v.Set(cpus); err != nil {
			return fmt.Errorf("set constants: %w", err)
		}
	}
	return nil
}

// scratchCPUs is how many CPUs have working memory.
func scratchCPUs() (uint32, error) {
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %w", err)
	}
	list, err := os.ReadFile(onlinePath)
	if err != nil {
		return uint32(possible), nil
	}
	return roomForCPUs(string(list), possible), nil
}

// roomForCPUs is for how many CPUs there is room, given the kernel's list of those that are online, "0-3,5", and how many are possible.
func roomForCPUs(online string, possible int) uint32 {
	online = strings.TrimSpace(online)
	last, err := strconv.Atoi(online[strings.LastIndexAny(online, "-,")+1:])
	if err != nil || last < 0 || last >= possible {
		return uint32(possible)
	}
	n := last + 1
	return uint32(min(n+max(2, n/8), possible))
}

// Memory is about how many bytes the maps of the agent take in the kernel, as they are loaded now: for samples of CPU time, and with all events.
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
			case name == "kept_stacks" || name == "known_links": // of other modes
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
