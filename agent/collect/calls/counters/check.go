package counters

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A VM is what a JVM must offer to have its calls counted: a part of what runtimes can do.
type VM interface {
	vmruntime.FlagReader
	vmruntime.MethodCounter
	Profiles(methods []uint64) (map[uint64]*vmruntime.MethodProfile, error)
	Names(places []vmruntime.Scope) ([]vmruntime.Frame, error)
}

// Flags are the command line flags with which all code of a JVM counts its calls.
const Flags = "-XX:TieredStopAtLevel=3 -XX:TypeProfileWidth=8"

// level and width are the values in Flags.
const (
	level = 3
	width = 8
)

// A FlagError says that the JVM's code does not count its calls, which cannot be changed while it
// runs.
type FlagError struct{ Why string }

func (e *FlagError) Error() string {
	return fmt.Sprintf("the JVM's code does not count its calls, because %s: start it with %s", e.Why, Flags)
}

// Check returns nil if all code of the VM counts its calls, a FlagError if not, and another error
// if that cannot be found out.
func Check(vm VM) error {
	for _, f := range []struct {
		name     string
		why      string
		optional bool // not every JDK has it
	}{
		{"UseCompiler", "it only interprets (-Xint)", false},
		{"TieredCompilation", "-XX:-TieredCompilation disables C1", false},
		{"ProfileInterpreter", "its interpreter counts nothing (-XX:-ProfileInterpreter)", true},
		{"C1UpdateMethodData", "C1's code counts nothing (-XX:-C1UpdateMethodData)", true},
		{"C1ProfileCalls", "C1's code counts no calls (-XX:-C1ProfileCalls)", true},
		{"C1ProfileVirtualCalls", "C1's code counts no receivers (-XX:-C1ProfileVirtualCalls)", true},
		{"C1ProfileInlinedCalls", "C1's code counts no inlined calls (-XX:-C1ProfileInlinedCalls)", true},
	} {
		on, err := vm.Flag(f.name)
		switch {
		case err != nil && !f.optional:
			return fmt.Errorf("read the JVM's flag %s: %w", f.name, err)
		case err == nil && !on:
			return &FlagError{f.why}
		}
	}
	stop, err := vm.Number("TieredStopAtLevel")
	if err != nil {
		return fmt.Errorf("read the JVM's flag TieredStopAtLevel: %w", err)
	}
	switch {
	case stop > level:
		return &FlagError{fmt.Sprintf("C2's code counts nothing and TieredStopAtLevel is %d", stop)}
	case stop < level:
		return &FlagError{fmt.Sprintf("TieredStopAtLevel is %d, and only code of level 3 counts calls", stop)}
	}
	return nil
}

// WidthNote describes what a narrow profile leaves out. It returns "" for a profile of full width.
func WidthNote(vm VM) string {
	rows, err := vm.Number("TypeProfileWidth")
	if err != nil || rows >= width {
		return ""
	}
	return fmt.Sprintf("TypeProfileWidth is %d: calls with receivers beyond the first %d classes of a call site have "+
		"no callee; "+
		"start the JVM with -XX:TypeProfileWidth=%d", rows, rows, width)
}
