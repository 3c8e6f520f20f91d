package php

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Semaphore reads the semaphore of php:function__entry in the guest's memory.
func (g *Guest) Semaphore() (uint16, error) {
	maps, err := proc.DefaultRoot.Maps(g.PID(), proc.Executable)
	if err != nil {
		return 0, err
	}
	exe, err := proc.DefaultRoot.Executable(g.PID())
	if err != nil {
		return 0, err
	}
	file, err := os.Open(exe)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	elf, err := elffile.Open(file, st.Size())
	if err != nil {
		return 0, err
	}
	probes, err := elf.Probes()
	if err != nil {
		return 0, err
	}
	for _, p := range probes {
		if p.Provider != "php" || p.Name != "function__entry" {
			continue
		}
		for _, m := range maps {
			if m.Path != exe {
				continue
			}
			bias, err := elf.Bias(m.Start, m.Offset)
			if err != nil {
				return 0, err
			}
			return g.word(bias + p.Semaphore)
		}
	}
	return 0, fmt.Errorf("%s has no probe php:function__entry", exe)
}

func (g *Guest) word(addr uint64) (uint16, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", g.PID()))
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	var b [2]byte
	if _, err := mem.ReadAt(b[:], int64(addr)); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint16(b[:]), nil
}
