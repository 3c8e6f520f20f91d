package methodinfo

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
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

// FuzzNames checks that names are fit for people and tools, whatever the guest says.
func FuzzNames(f *testing.F) {
	f.Add([]byte("app/Main$$Lambda$14+0x0000000800c02a18"), []byte("\xed\xa0\xbd\xed\xb8\x80"))
	f.Add([]byte("[[I"), []byte("\x00"))
	f.Fuzz(func(t *testing.T, class, method []byte) {
		name := FunctionName(vmstructs.CleanText(class), vmstructs.CleanText(method))
		if !utf8.ValidString(name) || len(name) > 2*vmstructs.MaxNameBytes+1 ||
			strings.ContainsFunc(name, unicode.IsControl) {
			t.Fatalf("%q, %q: %q", class, method, name)
		}
	})
}

func TestObjectClassName(t *testing.T) {
	for symbol, want := range map[string]string{
		"java/util/HashMap$Node":               "java.util.HashMap$Node",
		"java/util/Map$Entry":                  "java.util.Map$Entry",
		"[B":                                   "byte[]",
		"[[I":                                  "int[][]",
		"[Ljava/lang/String;":                  "java.lang.String[]",
		"[[[Ljava/util/Map$Entry;":             "java.util.Map$Entry[][][]",
		"Foo$$Lambda+0x00007f1c4c003400":       "Foo$$Lambda",
		"[LFoo$$Lambda$14+0x0000000800c02a18;": "Foo$$Lambda[]",
		"I":                                    "I", // a class may have that name
		"L;":                                   "L;",
		"[L;":                                  "[L;",
		"[":                                    "[",
		"[V":                                   "[V",
		"[Ljava/lang/String":                   "[Ljava.lang.String",
		"":                                     "",
		"a\x00b":                               "a\ufffdb",
		strings.Repeat("[", 255) + "Z":         "boolean" + strings.Repeat("[]", 255),
		strings.Repeat("[", 256) + "Z":         strings.Repeat("[", 256) + "Z",
	} {
		if got := ClassName([]byte(symbol)); got != want {
			t.Errorf("%q is called %q, want %q", symbol, got, want)
		}
	}
}

func TestFieldTypes(t *testing.T) {
	for descriptor, want := range map[string]struct {
		name  string
		bytes uint32
	}{
		"Z": {"boolean", 1}, "B": {"byte", 1}, "C": {"char", 2}, "S": {"short", 2}, "I": {"int", 4}, "F": {"float", 4},
		"J": {"long", 8}, "D": {"double", 8}, "Ljava/lang/Object;": {"java.lang.Object", 4}, "[[J": {"long[][]", 4},
	} {
		if name, n := TypeName(descriptor), TypeBytes(descriptor, 4); name != want.name || n != want.bytes {
			t.Errorf("%s: %s of %d bytes, want %+v", descriptor, name, n, want)
		}
	}
}

// FuzzClassName checks that names are fit for people and tools, whatever the guest says.
func FuzzClassName(f *testing.F) {
	for _, seed := range []string{"[[Ljava/lang/String;", "Foo$$Lambda+0x00007f1c4c003400", "[B", "[",
		"\xed\xa0\xbd\xed\xb8\x80"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, symbol []byte) {
		name := ClassName(symbol)
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) ||
			len(name) > vmstructs.MaxNameBytes+2*maxDimensions {
			t.Fatalf("%q: %q", symbol, name)
		}
		if (name == "") != (len(symbol) == 0) {
			t.Fatalf("%q: %q", symbol, name)
		}
	})
}
