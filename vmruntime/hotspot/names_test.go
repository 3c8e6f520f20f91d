package hotspot

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClassName(t *testing.T) {
	for class, want := range map[string]string{
		"java/util/HashMap":                                 "java.util.HashMap",
		"Main":                                              "Main",
		"java/util/Map$Entry":                               "java.util.Map$Entry",
		"app/Main$$Lambda$14+0x0000000800c02a18":            "app.Main$$Lambda",                // JDK 17
		"app/Main$$Lambda+0x00007f1c4c003400":               "app.Main$$Lambda",                // JDK 21
		"app/Main$$Lambda/0x00007f1c4c003400":               "app.Main$$Lambda",                // as the JDK prints it
		"app/Main$$Lambda$14/1324119927":                    "app.Main$$Lambda",                // JDK 8
		"java/lang/invoke/LambdaForm$MH+0x00000001000a8800": "java.lang.invoke.LambdaForm$MH",  // JDK 15+
		"java/lang/invoke/LambdaForm$DMH/531885035":         "java.lang.invoke.LambdaForm$DMH", // JDK 8
		"jdk/internal/reflect/GeneratedMethodAccessor12":    "jdk.internal.reflect.GeneratedMethodAccessor12",
		"app/Odd+Name":                                      "app.Odd+Name",
		"app/Main$$LambdaX$1":                               "app.Main$$LambdaX$1",
		"":                                                  "",
		"/":                                                 ".",
	} {
		if got := className(class); got != want {
			t.Errorf("class %q is called %q, want %q", class, got, want)
		}
	}
}

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{
		"<init>":                   "<init>",
		"grüßen":                   "grüßen",
		"a\x00b\nc":                "a\ufffdb\ufffdc",
		"a\xc0\x80b":               "a\ufffd\ufffdb",     // NUL in modified UTF-8
		"\xed\xa0\xbd\xed\xb8\x80": "😀",                  // surrogates in modified UTF-8
		"\xed\xa0\xbd":             "\ufffd\ufffd\ufffd", // half of that
		"\xff":                     "\ufffd",
		strings.Repeat("x", 600):   strings.Repeat("x", maxNameBytes),
		strings.Repeat("ü", 300):   strings.Repeat("ü", maxNameBytes/2),
	} {
		if got := cleanName([]byte(name)); got != want {
			t.Errorf("%q is cleaned to %q, want %q", name, got, want)
		}
	}
}

// FuzzNames checks that names are fit for people and tools, whatever the guest says.
func FuzzNames(f *testing.F) {
	f.Add([]byte("app/Main$$Lambda$14+0x0000000800c02a18"), []byte("\xed\xa0\xbd\xed\xb8\x80"))
	f.Add([]byte("[[I"), []byte("\x00"))
	f.Fuzz(func(t *testing.T, class, method []byte) {
		name := functionName(cleanName(class), cleanName(method))
		if !utf8.ValidString(name) || len(name) > 2*maxNameBytes+1 || strings.ContainsFunc(name, unicode.IsControl) {
			t.Fatalf("%q, %q: %q", class, method, name)
		}
	})
}
