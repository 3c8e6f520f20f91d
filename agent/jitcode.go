package agent

import (
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A jitCode is where code of a process is that its VM's own map names (perfmap.go), as the drainer knows it. It is
// immutable; nil knows of none.
type jitCode struct {
	low, high uint64 // all of it is in [low, high)
	// epoch changes when a name that was given is not right any more: frames from then on are other ones.
	epoch uint32
	again time.Duration // when the map is to be read on, CLOCK_MONOTONIC
}

// holds tells whether code at that address may have its name from the map.
func (c *jitCode) holds(f bpf.Frame) bool {
	return c != nil && f.Kind() == bpf.FrameNative && f.PC() >= c.low && f.PC() < c.high
}

// mark tells frames of a stack from those that code had before at the same place.
func (c *jitCode) mark(stack []rawFrame) {
	for i := range stack {
		if r := &stack[i]; (r.kind == rawExact || r.kind == rawReturn) && c.holds(r.frame) {
			r.epoch = c.epoch
		}
	}
}

// due tells whether the map is to be read on.
func (c *jitCode) due(now time.Duration) bool { return c != nil && now >= c.again }

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
