package symbolize

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// maxMangled is the longest mangled that is demangled, in bytes: the demangler recurses into it.
const maxMangled = 2048

// functionName turns a linker's mangled into a name for people: C++ and Rust names are demangled,
// with parameters. Other names stay as they are.
func functionName(mangled string) (name string) {
	if len(mangled) > maxMangled || !strings.HasPrefix(mangled, "_") {
		return symbol.CleanName(mangled)
	}
	defer func() {
		// The demangler reports malformed names as errors; a panic in it must not end the agent.
		if recover() != nil {
			name = symbol.CleanName(mangled)
		}
	}()
	// twiceMaxName is the length as a power of two: what is cut off here is cut off again by
	// symbol.CleanName, with an ellipsis.
	const twiceMaxName = 10
	return symbol.CleanName(demangle.Filter(mangled, demangle.MaxLength(twiceMaxName)))
}
