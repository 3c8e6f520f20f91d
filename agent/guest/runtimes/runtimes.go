// Package runtimes is the table of the runtimes that the agent supports. It is the only place that
// lists them: a new runtime is a new row.
package runtimes

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/cpythonbpf"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/hotspotbpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/cpython"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/perfmap"
)

// Table returns all runtimes. Where several recognise a process, the first one has it.
func Table() []bridge.Runtime {
	return []bridge.Runtime{
		jvm,
		{Runtime: cpython.Runtime{}, Kernel: cpythonbpf.Kernel{}, StacksOnly: true},
		{Runtime: perfmap.Runtime{}},
	}
}

var jvm = bridge.Runtime{Runtime: hotspot.Runtime{}, Kernel: hotspotbpf.Kernel{}}

// JVMs returns those that run Java, in the same order.
func JVMs() []bridge.Runtime { return []bridge.Runtime{jvm} }
