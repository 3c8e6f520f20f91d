package symbolize

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

// MaxName is the length in bytes of the longest name that CleanName gives.
const MaxName = 512

// Unknown is the Function of a frame that has no name; its mapping says where it is.
const Unknown = "[unknown]"

// UnknownAt is the Function of a frame without a name in a function that begins at this address of a file: [unknown libz.so.1+0x4970].
func UnknownAt(file string, start uint64) string {
	return fmt.Sprintf("%s%s+0x%x]", unknownIn, CleanName(path.Base(strings.TrimSuffix(file, " (deleted)"))), start)
}

const unknownIn = "[unknown "

// IsUnknown reports whether a Function is that of a frame without a name.
func IsUnknown(function string) bool {
	return function == Unknown || strings.HasPrefix(function, unknownIn) && strings.HasSuffix(function, "]") && strings.Contains(function, "+0x")
}

// CleanName is Printable with the bound of this package's names, MaxName.
func CleanName(name string) string { return Printable(name, MaxName) }

// Printable makes a name that came from a target safe to store and to show: valid UTF-8 of at most limit bytes, in which
// nothing breaks a line, moves a terminal's cursor, is invisible or turns the direction of text. Such characters and
// invalid bytes become escapes (\n, \x1b, \u202e), letters of any script stay, and longer names end in "…". A printable
// name of at most limit bytes stays as it is. The limit is at least 16.
//
// Three places have rules of their own: vmruntime/hotspot/vmstructs.CleanText decodes HotSpot's encoding, labels of
// metrics (agent/sink/prom) stay short whatever a name contains, and so do names of tasks and services (agent/proc).
func Printable(name string, limit int) string {
	if len(name) <= limit && isPlain(name) {
		return name
	}
	const ellipsis = "…"
	var b strings.Builder
	fits := 0 // length of the longest prefix that leaves room for the ellipsis
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, name[i])
		case strconv.IsPrint(r):
			b.WriteString(name[i : i+size])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
		if b.Len() <= limit-len(ellipsis) {
			fits = b.Len()
		}
		if b.Len() > limit {
			return b.String()[:fits] + ellipsis
		}
	}
	return b.String()
}

// isPlain is the quick answer for nearly all names: printable ASCII.
func isPlain(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}

// maxMangled is the longest symbol that is demangled, in bytes: the demangler recurses into it.
const maxMangled = 2048

// functionName turns a linker's symbol into a name for people: C++ and Rust names are demangled, with parameters. Other names stay as they
// are.
func functionName(symbol string) (name string) {
	if len(symbol) > maxMangled || !strings.HasPrefix(symbol, "_") {
		return CleanName(symbol)
	}
	defer func() {
		// The demangler reports malformed names as errors; a panic in it must not end the agent.
		if recover() != nil {
			name = CleanName(symbol)
		}
	}()
	const twiceMaxName = 10 // as a power of two: what is cut off here is cut off again by CleanName, with an ellipsis
	return CleanName(demangle.Filter(symbol, demangle.MaxLength(twiceMaxName)))
}
