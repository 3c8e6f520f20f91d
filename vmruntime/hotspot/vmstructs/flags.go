package vmstructs

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxFlags bounds the table of command line flags. JDK 25 has 1,300.
const maxFlags = 8 << 10

// FlagSchema leads to the command line flags: an array of JVMFlag
// (src/hotspot/share/runtime/flags/jvmFlag.hpp).
type FlagSchema struct {
	flags, count uint64 // statics
	name, addr   Field  // fields of JVMFlag
	size         uint64
}

// NewFlagSchema looks up where the flags are. If the VM does not export them, every read of a flag
// fails.
func NewFlagSchema(r *Resolver) FlagSchema {
	s := FlagSchema{
		flags: r.OptionalStatic("JVMFlag.flags"),
		count: r.OptionalStatic("JVMFlag.numFlags"),
		name:  r.Optional("JVMFlag._name"),
		addr:  r.Optional("JVMFlag._addr"),
		size:  r.Sizes["JVMFlag"],
	}
	if s.flags == 0 { // JDK 8
		s.flags, s.count = r.OptionalStatic("Flag.flags"), r.OptionalStatic("Flag.numFlags")
		s.name, s.addr, s.size = r.Optional("Flag._name"), r.Optional("Flag._addr"), r.Sizes["Flag"]
	}
	return s
}

// ReadBool reads a flag of type bool.
func ReadBool(t Reader, s *FlagSchema, name string) (value bool, err error) {
	addr, err := findFlag(t, s, name)
	if err != nil {
		return false, err
	}
	b, err := t.Bytes(addr, 1)
	return err == nil && b[0] != 0, err
}

// ReadNumber reads a flag of type intx.
func ReadNumber(t Reader, s *FlagSchema, name string) (value int64, err error) {
	addr, err := findFlag(t, s, name)
	if err != nil {
		return 0, err
	}
	n, err := t.Word(addr)
	return int64(n), err
}

// findFlag returns where the value of a flag is.
func findFlag(t Reader, s *FlagSchema, name string) (addr uint64, err error) {
	found, err := FindFlags(t, s, name)
	if err != nil {
		return 0, err
	}
	addr, ok := found[name]
	if !ok {
		return 0, fmt.Errorf("the VM has no flag %s", name)
	}
	return addr, nil
}

// FindFlags returns where the values of flags are. Those that the VM does not have are absent.
func FindFlags(t Reader, s *FlagSchema, wanted ...string) (map[string]uint64, error) {
	if s.flags == 0 || s.count == 0 || s.size == 0 || s.size > MaxSize || !s.name.Known || !s.addr.Known {
		return nil, fmt.Errorf("the VM does not export its flags")
	}
	array, err := t.Word(s.flags)
	if err != nil {
		return nil, err
	}
	n, err := t.Word(s.count)
	if err != nil {
		return nil, err
	}
	if n > maxFlags {
		return nil, fmt.Errorf("%d flags: %w", n, vmruntime.ErrMalformed)
	}
	table, err := t.Bytes(array, n*s.size)
	if err != nil {
		return nil, err
	}
	pointers := make([]uint64, n)
	for i := range pointers {
		pointers[i] = s.name.Read(table[uint64(i)*s.size:][:s.size])
	}
	names, err := t.Texts(pointers)
	if err != nil {
		return nil, err
	}
	found := make(map[string]uint64, len(wanted))
	for i, pointer := range pointers {
		if name := names[pointer]; slices.Contains(wanted, name) {
			found[name] = s.addr.Read(table[uint64(i)*s.size:][:s.size])
		}
	}
	return found, nil
}

// FlagValues are command line flags by name, as the eight bytes at each: a bool has one of them.
// Those that the VM does not have are absent.
type FlagValues map[string]uint64

// On reports whether a flag of type bool is set.
func (v FlagValues) On(name string) bool { return v[name]&0xff != 0 }
