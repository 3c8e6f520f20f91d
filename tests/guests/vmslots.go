package guests

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/prometheus/procfs"
)

// A VMSlot is one thread's countdown: struct vmprof_slot of contrib/guest/vmprof.h.
type VMSlot struct{ Armed, Skip, Left, Stride uint32 }

// Offsets of the slots in struct vmprof_page, in bytes.
const (
	vmSlots      = 60
	vmSlotsBegin = 256
	vmSlotSize   = 64
)

// Slots reads the guest's slots from its memory: all zero without an agent. It needs the right to
// ptrace the guest.
func (r *VMRun) Slots() ([]VMSlot, error) {
	slots, err := r.slots()
	if err != nil {
		return nil, fmt.Errorf("read slots of the reference guest: %w", err)
	}
	return slots, nil
}

func (r *VMRun) slots() ([]VMSlot, error) {
	variable, err := r.pageVariable()
	if err != nil {
		return nil, err
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", r.Pid()))
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	var pointer uint64
	if err := binary.Read(io.NewSectionReader(memory, variable, 8), binary.NativeEndian, &pointer); err != nil {
		return nil, err
	}
	page := make([]byte, vmSlotsBegin+vmSlots*vmSlotSize)
	if _, err := memory.ReadAt(page, int64(pointer)); err != nil {
		return nil, err
	}
	slots := make([]VMSlot, vmSlots)
	for i := range slots {
		if _, err := binary.Decode(page[vmSlotsBegin+i*vmSlotSize:], binary.NativeEndian, &slots[i]); err != nil {
			return nil, err
		}
	}
	return slots, nil
}

// pageVariable is the address of the variable in which the header keeps the page's address.
func (r *VMRun) pageVariable() (int64, error) {
	const name = "vmprof_page_"
	file, err := elf.Open(r.cmd.Path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		return 0, err
	}
	process, err := procfs.NewProc(r.Pid())
	if err != nil {
		return 0, err
	}
	maps, err := process.ProcMaps()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		for _, m := range maps {
			// The executable is position-independent: its addresses count from where its first byte
			// is mapped.
			if s.Name == name && m.Pathname == r.cmd.Path && m.Offset == 0 {
				return int64(uint64(m.StartAddr) + s.Value), nil
			}
		}
	}
	return 0, errors.New("it has no variable " + name)
}

// Sampled reports whether the agent that the guest is connected to has armed one of its threads.
func (r *VMRun) Sampled() (bool, error) {
	slots, err := r.Slots()
	// The slots stay after a burst.
	return slices.ContainsFunc(slots, func(s VMSlot) bool { return s.Stride != 0 }), err
}
