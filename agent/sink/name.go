package sink

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxName bounds a name in any output, in bytes. The longest demangled C++ name in the libjvm of JDK 17 has 857;
// anything much longer is garbage or an attack.
const maxName = 1024

// unnamed stands for a frame that nobody has a name for.
const unnamed = "[unknown]"

// printable makes a name safe to store and to show: at most maxName bytes, cut with an ellipsis; valid UTF-8;
// whatever is invisible or moves the cursor (control characters, line breaks, marks that change the direction of
// writing, lone bytes) written as an escape, \n or \u202e. Letters of any script stay as they are.
func printable(name string) string {
	if len(name) <= maxName && isPlain(name) {
		return name
	}
	const ellipsis = "…"
	var b strings.Builder
	// A name may be a megabyte long; look only at what can be kept.
	for rest := name[:min(len(name), maxName+utf8.UTFMax)]; rest != ""; {
		r, width := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case strconv.IsPrint(r):
			b.WriteString(rest[:width])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[width:]
	}
	if b.Len() <= maxName {
		return b.String()
	}
	return strings.ToValidUTF8(b.String()[:maxName-len(ellipsis)], "") + ellipsis // no half of a rune at the cut
}

// isPlain says that name is printable ASCII, as nearly all are.
func isPlain(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}
