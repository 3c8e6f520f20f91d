package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// kernelModes are the modes as the kernel side knows them.
var kernelModes = [...]bpf.Mode{profile.ContextWalk: bpf.ModeWalk, profile.ContextPartial: bpf.ModePartial, profile.ContextChain: bpf.ModeChain}
