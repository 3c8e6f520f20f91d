package hotspot

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNameBytes bounds one name of a class, a method, a signature or a stub. Longer ones are cut.
const maxNameBytes = 512

// functionName joins a class and a method in the form of Java source: java.util.HashMap.get. class is in the VM's
// internal form, java/util/HashMap.
func functionName(class, method string) string {
	if class == "" {
		return method
	}
	return className(class) + "." + method
}

// className turns the VM's internal form of a class name into that of Java source, and drops what differs between two
// runs of the same program, so that profiles can be compared and merged:
//
//	java/lang/invoke/LambdaForm$MH+0x00007f1c4c003400  ->  java.lang.invoke.LambdaForm$MH     hidden classes, JDK 15+
//	app/Main$$Lambda$14+0x0000000800c02a18             ->  app.Main$$Lambda                    JDK 15-20
//	app/Main$$Lambda$14/1324119927                     ->  app.Main$$Lambda                    JDK 8-14
//
// The numbers say in which order lambdas were first run, and where. Two lambdas of one class get the same name, but
// their bodies are methods of that class with names of their own (lambda$main$0).
func className(class string) string {
	class = dropHiddenSuffix(class)
	const lambda = "$$Lambda"
	if i := strings.LastIndex(class, lambda); i >= 0 {
		if number, found := strings.CutPrefix(class[i+len(lambda):], "$"); found && isNumber(number) {
			class = class[:i+len(lambda)]
		}
	}
	return strings.ReplaceAll(class, "/", ".")
}

// dropHiddenSuffix cuts the address or number that tells hidden and VM-anonymous classes apart. A '/' before a number
// cannot be part of a class name, as no identifier begins with a digit.
func dropHiddenSuffix(class string) string {
	i := strings.LastIndexAny(class, "+/")
	if i <= 0 {
		return class
	}
	suffix := class[i+1:]
	if address, found := strings.CutPrefix(suffix, "0x"); found && isHex(address) || class[i] == '/' && isNumber(suffix) {
		return class[:i]
	}
	return class
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
func isHex(s string) bool    { return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// cleanName makes a name that came out of the guest's memory fit for people and tools: HotSpot's modified UTF-8 (JVM
// specification, section 4.4.7) becomes UTF-8, control characters and what is malformed become U+FFFD, and it is cut
// at maxNameBytes.
func cleanName(name []byte) string {
	if isPlain(name) && len(name) <= maxNameBytes {
		return string(name)
	}
	var b strings.Builder
	for len(name) > 0 {
		r, size := decodeRune(name)
		if unicode.IsControl(r) {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > maxNameBytes {
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

// decodeRune decodes one character. Modified UTF-8 writes characters beyond U+FFFF as two surrogates of three bytes
// each, and NUL as two bytes; the latter is a control character here.
func decodeRune(b []byte) (r rune, size int) {
	if high, ok := surrogate(b, 0xa0); ok {
		if low, ok := surrogate(b[3:], 0xb0); ok {
			return 0x10000 + high<<10 + low, 6
		}
	}
	return utf8.DecodeRune(b)
}

// surrogate returns the ten bits of a surrogate that is encoded in three bytes, the second of them second to
// second+15.
func surrogate(b []byte, second byte) (bits rune, ok bool) {
	if len(b) < 3 || b[0] != 0xed || b[1]&0xf0 != second || b[2]&0xc0 != 0x80 {
		return 0, false
	}
	return rune(b[1]&0x0f)<<6 | rune(b[2]&0x3f), true
}
