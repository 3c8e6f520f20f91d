package symbolize

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

// MaxName is the length in bytes of the longest name that CleanName gives.
const MaxName = 512

// Unknown is the Function of a frame that has no name; its mapping says where it is.
const Unknown = "[unknown]"

// CleanName makes a name that came from a target fit for every output: valid UTF-8 of at most MaxName bytes, in which
// nothing breaks a line, moves a terminal's cursor or turns the direction of text. Control characters and invalid
// bytes become escapes (\n, \x1b, \u202e), longer names end in "…". A clean name stays as it is.
func CleanName(name string) string {
	if len(name) <= MaxName && isPlain(name) {
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
		case isHarmful(r):
			b.WriteString(escape(r))
		default:
			b.WriteString(name[i : i+size])
		}
		i += size
		if b.Len() <= MaxName-len(ellipsis) {
			fits = b.Len()
		}
		if b.Len() > MaxName {
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

// isHarmful reports control characters, line and paragraph separators, and invisible format characters such as those
// that turn the direction of text.
func isHarmful(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

func escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// maxMangled is the longest symbol that is demangled, in bytes: the demangler recurses into it.
const maxMangled = 2048

// functionName turns a linker's symbol into a name for people: C++ and Rust names are demangled, with parameters. What
// cannot be demangled stays as it is.
func functionName(symbol string) (name string) {
	if len(symbol) > maxMangled || !strings.HasPrefix(symbol, "_") {
		return CleanName(symbol)
	}
	defer func() {
		// The demangler reports malformed names as errors; should one get past its checks, it must not end the agent.
		if recover() != nil {
			name = CleanName(symbol)
		}
	}()
	const twiceMaxName = 10 // as a power of two: what is cut off here is cut off again by CleanName, with an ellipsis
	return CleanName(demangle.Filter(symbol, demangle.MaxLength(twiceMaxName)))
}
