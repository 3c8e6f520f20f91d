package symbol

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxName is the length in bytes of the longest name that CleanName gives.
const MaxName = 512

// Unknown is the Function of a frame that has no name; its mapping says where it is.
const Unknown = "[unknown]"

// UnknownAt is the Function of a frame without a name in a function that begins at this address of
// a file: [unknown libz.so.1+0x4970].
func UnknownAt(file string, start uint64) string {
	return fmt.Sprintf("%s%s+0x%x]", unknownIn, CleanName(path.Base(strings.TrimSuffix(file, " (deleted)"))), start)
}

const unknownIn = "[unknown "

// IsUnknown reports whether a Function is that of a frame without a name.
func IsUnknown(function string) bool {
	return function == Unknown || strings.HasPrefix(function, unknownIn) && strings.HasSuffix(function, "]") &&
		strings.Contains(function, "+0x")
}

// CleanName is Printable with the bound of this package's names, MaxName.
func CleanName(name string) string { return Printable(name, MaxName) }

// Printable makes a name that came from a target safe to store and to show: valid UTF-8 of at most
// limit bytes, in which nothing breaks a line, moves a terminal's cursor, is invisible or turns the
// direction of text. Such characters and invalid bytes become escapes (\n, \x1b, \u202e), letters
// of any script stay, and longer names end in "…". A printable name of at most limit bytes stays as
// it is. The limit is at least 16. Characters beyond U+FFFF, such as emoji, are also understood as
// HotSpot gives them to the kernel: each half of a surrogate pair in three bytes.
//
// Three places have rules of their own: vmruntime/hotspot/vmstructs.CleanText decodes HotSpot's
// encoding, labels of metrics (agent/view/sink/prom) stay short whatever a name contains, and so do
// names of tasks and services (agent/host/proc).
func Printable(name string, limit int) string {
	if len(name) <= limit && isPlain(name) {
		return name
	}
	const ellipsis = "…"
	var b strings.Builder
	fits := 0 // length of the longest prefix that leaves room for the ellipsis
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if pair := surrogatePair(name[i:]); strconv.IsPrint(pair) {
			r, size = pair, 2*surrogateBytes
		}
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, name[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
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

// surrogateBytes is how long half of a surrogate pair is.
const surrogateBytes = 3

// surrogatePair decodes a character that begins as two surrogates in three bytes each; -1 if there
// is none.
func surrogatePair(text string) rune {
	if len(text) < 2*surrogateBytes || text[0] != 0xed || text[3] != 0xed || text[1]&0xf0 != 0xa0 ||
		text[4]&0xf0 != 0xb0 || text[2]&0xc0 != 0x80 || text[5]&0xc0 != 0x80 {
		return -1
	}
	half := func(at int) rune { return 0xd000 | rune(text[at+1]&0x3f)<<6 | rune(text[at+2]&0x3f) }
	return utf16.DecodeRune(half(0), half(surrogateBytes))
}

// CommBytes is how many bytes of a thread's name the kernel keeps.
const CommBytes = 15

// CommName is CleanName of the kernel's name of a thread, up to its zero byte. A character of which
// the kernel has kept the beginning only is left out.
func CommName(comm []byte) string {
	if i := bytes.IndexByte(comm, 0); i >= 0 {
		comm = comm[:i]
	}
	text := string(comm)
	if len(text) < CommBytes {
		return CleanName(text)
	}
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRuneInString(text[at:])
		switch rest := text[at:]; {
		case surrogatePair(rest) >= 0:
			size = 2 * surrogateBytes
		case len(rest) < 2*surrogateBytes && len(rest) >= 2 && rest[0] == 0xed && rest[1]&0xf0 == 0xa0,
			!utf8.FullRuneInString(rest):
			return CleanName(text[:at])
		}
		at += size
	}
	return CleanName(text)
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
