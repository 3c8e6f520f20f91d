package php

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Semaphore reads the semaphore of php:function__entry in the guest's memory.
func (g *Guest) Semaphore() (uint16, error) {
	var b [2]byte
	err := g.probe(func(mem, _ *os.File, bias uint64, p elffile.Probe) error {
		_, err := mem.ReadAt(b[:], int64(bias+p.Semaphore))
		return err
	})
	return binary.NativeEndian.Uint16(b[:]), err
}

// Original reports whether the guest's code at php:function__entry is as its file has it: nobody's
// breakpoint is there.
func (g *Guest) Original() (bool, error) {
	var now, then [16]byte
	err := g.probe(func(mem, file *os.File, bias uint64, p elffile.Probe) error {
		if _, err := mem.ReadAt(now[:], int64(bias+p.Location)); err != nil {
			return err
		}
		_, err := file.ReadAt(then[:], int64(p.Offset))
		return err
	})
	return bytes.Equal(now[:], then[:]), err
}

// probe finds php:function__entry in the guest.
func (g *Guest) probe(visit func(mem, file *os.File, bias uint64, p elffile.Probe) error) error {
	maps, err := proc.DefaultRoot.Maps(g.PID(), proc.Executable)
	if err != nil {
		return err
	}
	exe, err := proc.DefaultRoot.Executable(g.PID())
	if err != nil {
		return err
	}
	file, err := os.Open(exe)
	if err != nil {
		return err
	}
	defer file.Close()
	elf, err := elffile.OpenFile(file)
	if err != nil {
		return err
	}
	probes, err := elf.Probes()
	if err != nil {
		return err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", g.PID()))
	if err != nil {
		return err
	}
	defer mem.Close()
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
				return err
			}
			return visit(mem, file, bias, p)
		}
	}
	return fmt.Errorf("%s has no probe php:function__entry", exe)
}
