package vmstructs

import (
	"strings"
	"testing"
)

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{
		"<init>":                   "<init>",
		"grüßen":                   "grüßen",
		"a\x00b\nc":                "a\ufffdb\ufffdc",
		"a\xc0\x80b":               "a\ufffd\ufffdb",     // NUL in modified UTF-8
		"\xed\xa0\xbd\xed\xb8\x80": "😀",                  // surrogates in modified UTF-8
		"\xed\xa0\xbd":             "\ufffd\ufffd\ufffd", // half of that
		"\xff":                     "\ufffd",
		strings.Repeat("x", 600):   strings.Repeat("x", MaxNameBytes),
		strings.Repeat("ü", 300):   strings.Repeat("ü", MaxNameBytes/2),
	} {
		if got := CleanText([]byte(name)); got != want {
			t.Errorf("%q is cleaned to %q, want %q", name, got, want)
		}
	}
}
