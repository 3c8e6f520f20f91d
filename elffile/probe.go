package elffile

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A Probe is one site of a USDT probe: a NOP in the code, where the arguments are at the locations
// in Args. An inlined or cloned probe has several sites with the same name, whose arguments may be
// at different locations.
type Probe struct {
	Provider, Name string
	Location       uint64 // address (of the file) of the NOP
	Offset         uint64 // its offset in the file, as uprobes want it
	// Semaphore is the address of a 16-bit counter that the program checks before it computes the
	// arguments. SemaphoreOffset is its offset in the file, for the kernel to increment. Both are 0
	// if there is none. All attachments to a site must pass the same offset.
	Semaphore, SemaphoreOffset uint64
	Args                       []Operand
}

// noteStap is the kind of probe notes (_SDT_NOTE_TYPE of sys/sdt.h).
const noteStap = 3

// Probes returns the USDT probes of the file, in the order of its notes; none is not an error. A
// probe whose site is not in loaded code is left out, as it cannot be attached to. ErrMalformed if
// the notes are truncated or inconsistent, ErrTooLarge if there are too many.
func (f *File) Probes() ([]Probe, error) {
	s := f.sectionNamed(".note.stapsdt")
	if s == nil {
		return nil, nil
	}
	data, err := f.sectionData(s, maxNotes)
	if err != nil {
		return nil, fmt.Errorf(".note.stapsdt: %w", err)
	}
	var base uint64
	if s := f.sectionNamed(".stapsdt.base"); s != nil {
		base = s.Addr
	}
	return f.parseProbes(data, base)
}

func (f *File) parseProbes(data []byte, base uint64) ([]Probe, error) {
	var probes []Probe
	for len(data) > 0 {
		n, rest, err := nextNote(data)
		if err != nil {
			return nil, fmt.Errorf(".note.stapsdt: %w", err)
		}
		data = rest
		if n.kind != noteStap || string(n.owner) != "stapsdt" {
			continue
		}
		probe, args, err := parseProbe(n.desc, base)
		if err != nil {
			return nil, fmt.Errorf(".note.stapsdt: %w", err)
		}
		var loaded bool
		if probe.Offset, loaded = f.AddressToOffset(probe.Location); !loaded {
			continue
		}
		if _, code := f.codeEnd(probe.Location); !code {
			continue
		}
		if probe.Semaphore != 0 {
			if probe.SemaphoreOffset, loaded = f.AddressToOffset(probe.Semaphore); !loaded {
				continue
			}
		}
		if len(probes) == maxProbes {
			return nil, fmt.Errorf(".note.stapsdt: more than %d probes: %w", maxProbes, ErrTooLarge)
		}
		probe.Args = ParseOperands(f.machine, args)
		probes = append(probes, probe)
	}
	return probes, nil
}

// parseProbe reads a note's descriptor: the addresses of site, base and semaphore, then provider,
// name and arguments as C strings (the note layout of sys/sdt.h).
//
// Tools such as prelink move a file's addresses without looking into notes. The base is the address
// that the section .stapsdt.base had when the note was made; by as much as that section (now at
// base) has moved, everything has.
func parseProbe(desc []byte, base uint64) (probe Probe, args string, err error) {
	const addresses = 3 * 8
	if len(desc) < addresses {
		return Probe{}, "", fmt.Errorf("probe note of %d bytes: %w", len(desc), ErrMalformed)
	}
	probe.Location = binary.LittleEndian.Uint64(desc)
	noteBase := binary.LittleEndian.Uint64(desc[8:])
	probe.Semaphore = binary.LittleEndian.Uint64(desc[16:])
	if base != 0 && noteBase != 0 {
		probe.Location += base - noteBase
		if probe.Semaphore != 0 {
			probe.Semaphore += base - noteBase
		}
	}
	fields := bytes.SplitN(desc[addresses:], []byte{0}, 4)
	if len(fields) < 4 { // the third string has its NUL as well
		return Probe{}, "", fmt.Errorf("probe note without its three strings: %w", ErrMalformed)
	}
	for _, field := range fields[:3] {
		if len(field) > maxName {
			return Probe{}, "", fmt.Errorf("probe note with a string of %d bytes: %w", len(field), ErrTooLarge)
		}
	}
	return Probe{Provider: string(fields[0]), Name: string(fields[1]), Location: probe.Location,
		Semaphore: probe.Semaphore}, string(fields[2]), nil
}
