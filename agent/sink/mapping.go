package sink

import (
	"strings"
	"unique"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Names of the pseudo-mappings by what runs there, in brackets and with the VM behind a colon: [jit:HotSpot]. They
// are all that a stored profile says about a frame's kind.
const (
	mappingJIT         = "[jit"
	mappingInterpreter = "[interpreter"
	mappingStub        = "[stub"
	mappingKernel      = "[kernel"
)

// frameMapping returns the mapping of frame under a name that tells its kind, or nothing for what is not code.
func frameMapping(frame symbolize.Frame) symbolize.Mapping {
	var m symbolize.Mapping
	if frame.Mapping != (unique.Handle[symbolize.Mapping]{}) { // the zero handle has no value
		m = frame.Mapping.Value()
	}
	var kind string
	switch frame.Kind {
	case symbolize.KindMarker:
		return symbolize.Mapping{}
	case symbolize.KindJIT:
		kind = mappingJIT
	case symbolize.KindInterpreted:
		kind = mappingInterpreter
	case symbolize.KindStub:
		kind = mappingStub
	case symbolize.KindKernel:
		kind = mappingKernel
	default:
		return m
	}
	if strings.HasPrefix(m.File, kind) {
		return m
	}
	// [jit:HotSpot], where an interpreted frame is, becomes [interpreter:HotSpot]; the module [nf_tables]
	// becomes [kernel:nf_tables].
	owner := strings.Trim(m.File, "[]")
	if _, vm, ok := strings.Cut(owner, ":"); ok {
		owner = vm
	} else if frame.Kind != symbolize.KindKernel {
		owner = ""
	}
	m.File = kind + "]"
	if owner != "" {
		m.File = kind + ":" + owner + "]"
	}
	return m
}

// mappingHow reads back what frameMapping wrote.
func mappingHow(m *pprof.Mapping) how {
	switch {
	case m == nil || m.File == "":
		return 0
	case strings.HasPrefix(m.File, mappingJIT):
		return jit
	case strings.HasPrefix(m.File, mappingInterpreter):
		return interpreted
	case strings.HasPrefix(m.File, mappingStub):
		return stub
	case strings.HasPrefix(m.File, mappingKernel):
		return kernel
	}
	return native
}
