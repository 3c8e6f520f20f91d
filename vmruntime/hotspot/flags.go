package hotspot

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxFlags bounds the table of command line flags. JDK 25 has 1,300.
const maxFlags = 8 << 10

// flagSchema leads to the command line flags: an array of JVMFlag (src/hotspot/share/runtime/flags/jvmFlag.hpp).
type flagSchema struct {
	flags, count uint64 // statics
	name, addr   field  // of JVMFlag
	size         uint64
}

func newFlagSchema(r *resolver) flagSchema {
	s := flagSchema{
		flags: r.optionalStatic("JVMFlag.flags"),
		count: r.optionalStatic("JVMFlag.numFlags"),
		name:  r.optional("JVMFlag._name"),
		addr:  r.optional("JVMFlag._addr"),
		size:  r.sizes["JVMFlag"],
	}
	if s.flags == 0 { // JDK 8
		s.flags, s.count = r.optionalStatic("Flag.flags"), r.optionalStatic("Flag.numFlags")
		s.name, s.addr, s.size = r.optional("Flag._name"), r.optional("Flag._addr"), r.sizes["Flag"]
	}
	return s
}

// readFlag reads a flag of type bool.
func readFlag(t target, s *flagSchema, name string) (value bool, err error) {
	addr, err := findFlag(t, s, name)
	if err != nil {
		return false, err
	}
	b, err := t.bytes(addr, 1)
	return err == nil && b[0] != 0, err
}

// readNumber reads a flag of type intx.
func readNumber(t target, s *flagSchema, name string) (value int64, err error) {
	addr, err := findFlag(t, s, name)
	if err != nil {
		return 0, err
	}
	n, err := t.word(addr)
	return int64(n), err
}

// findFlag returns where the value of a flag is.
func findFlag(t target, s *flagSchema, name string) (addr uint64, err error) {
	found, err := findFlags(t, s, name)
	if err != nil {
		return 0, err
	}
	addr, ok := found[name]
	if !ok {
		return 0, fmt.Errorf("the VM has no flag %s", name)
	}
	return addr, nil
}

// findFlags returns where the values of flags are. Those that the VM does not have are absent.
func findFlags(t target, s *flagSchema, wanted ...string) (map[string]uint64, error) {
	if s.flags == 0 || s.count == 0 || s.size == 0 || s.size > maxSize || !s.name.known || !s.addr.known {
		return nil, fmt.Errorf("the VM does not export its flags")
	}
	array, err := t.word(s.flags)
	if err != nil {
		return nil, err
	}
	n, err := t.word(s.count)
	if err != nil {
		return nil, err
	}
	if n > maxFlags {
		return nil, fmt.Errorf("%d flags: %w", n, vmruntime.ErrMalformed)
	}
	table, err := t.bytes(array, n*s.size)
	if err != nil {
		return nil, err
	}
	pointers := make([]uint64, n)
	for i := range pointers {
		pointers[i] = s.name.of(table[uint64(i)*s.size:][:s.size])
	}
	names, err := t.strings(pointers)
	if err != nil {
		return nil, err
	}
	found := make(map[string]uint64, len(wanted))
	for i, pointer := range pointers {
		if name := names[pointer]; slices.Contains(wanted, name) {
			found[name] = s.addr.of(table[uint64(i)*s.size:][:s.size])
		}
	}
	return found, nil
}

// flagValues are command line flags by name, as the eight bytes at each: a bool has one of them. Those that the VM
// does not have are absent.
type flagValues map[string]uint64

func (v flagValues) on(name string) bool { return v[name]&0xff != 0 }
