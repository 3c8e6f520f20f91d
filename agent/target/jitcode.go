package target

import (
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A JITCode is where code of a process is that its VM's own map names (perfmap.go), as the drainer knows it. It is
// immutable; nil knows of none.
type JITCode struct {
	Low, High uint64 // all of it is in [low, high)
	// Epoch changes when a name that was given is not right any more: frames from then on are other ones.
	Epoch uint32
	Again time.Duration // when the map is to be read on, CLOCK_MONOTONIC
}

// Holds tells whether code at that address may have its name from the map.
func (c *JITCode) Holds(f bpf.Frame) bool {
	return c != nil && f.Kind() == bpf.FrameNative && f.PC() >= c.Low && f.PC() < c.High
}

// Mark tells frames of a stack from those that code had before at the same place.
func (c *JITCode) Mark(stack []RawFrame) {
	for i := range stack {
		if r := &stack[i]; (r.Kind == RawExact || r.Kind == RawReturn) && c.Holds(r.Frame) {
			r.Epoch = c.Epoch
		}
	}
}

// Due tells whether the map is to be read on.
func (c *JITCode) Due(now time.Duration) bool { return c != nil && now >= c.Again }

// mayBeJIT tells whether code in a mapping may be a JIT compiler's: in memory that is no file, or only looks like one, as
// memory that is mapped twice or shared does. Mappings are known as they were a moment ago, and compilers take the right
// to execute away from their memory while they write; so what is not mapped may be theirs, too.
func mayBeJIT(m *proc.Mapping) bool {
	if m == nil {
		return true
	}
	if !m.IsFile() {
		return !strings.HasPrefix(m.Path, "[v") // [vdso], [vsyscall]
	}
	return m.Deleted && (strings.HasPrefix(m.Path, "/memfd:") || strings.HasPrefix(m.Path, "/SYSV") || m.Path == "/dev/zero")
}
