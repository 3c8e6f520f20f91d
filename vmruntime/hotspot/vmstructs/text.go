package vmstructs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds one name of a class, a method, a signature or a stub. Longer ones are cut.
const MaxNameBytes = 512

// CleanText makes a name out of the process's memory fit for people and tools: HotSpot's modified
// UTF-8 (JVM specification, section 4.4.7) becomes UTF-8, control characters and what is malformed
// become U+FFFD, and it is cut at MaxNameBytes. It decodes, so it leaves the escapes that outputs
// need to symbol.Printable.
func CleanText(name []byte) string {
	if isPlain(name) && len(name) <= MaxNameBytes {
		return string(name)
	}
	var b strings.Builder
	for len(name) > 0 {
		r, size := decodeRune(name)
		if unicode.IsControl(r) {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > MaxNameBytes {
			break
		}
		b.WriteRune(r)
		name = name[size:]
	}
	return b.String()
}

func isPlain(name []byte) bool {
	for _, c := range name {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// decodeRune decodes one character. Modified UTF-8 writes characters beyond U+FFFF as two
// surrogates of three bytes each, and NUL as two bytes; the latter is a control character here.
func decodeRune(b []byte) (r rune, size int) {
	if high, ok := surrogate(b, 0xa0); ok {
		if low, ok := surrogate(b[3:], 0xb0); ok {
			return 0x10000 + high<<10 + low, 6
		}
	}
	return utf8.DecodeRune(b)
}

// surrogate returns the ten bits of a surrogate that is encoded in three bytes, the second of them
// second to second+15.
func surrogate(b []byte, second byte) (bits rune, ok bool) {
	if len(b) < 3 || b[0] != 0xed || b[1]&0xf0 != second || b[2]&0xc0 != 0x80 {
		return 0, false
	}
	return rune(b[1]&0x0f)<<6 | rune(b[2]&0x3f), true
}
