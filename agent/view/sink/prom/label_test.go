package prom

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLabel(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "java.util.HashMap.get", "java.util.HashMap.get"},
		{"constructor", "java.lang.Object.<init>", "java.lang.Object.<init>"},
		{"template", `std::map<int, "a\b">::at`, `std::map<int, "a\b">::at`},
		{"empty", "", "[unknown]"},
		{"function without a name", "[unknown libz.so.1+0x123456789]", "[unknown]"},
		{"controls", "a\nb\x00c\x1b[31md\u202ee", "a?b?c?[31md?e"},
		{"invalid UTF-8", "a\xffb\xc3", "a?b?"},
		{"letters of the world", "com.acme.Größe.数える", "com.acme.Größe.数える"},
		{"lambda, JDK 17", "Shop$$Lambda$14/0x0000000840066040.apply", "Shop$$Lambda.apply"},
		{"lambda, inside the VM", "Shop$$Lambda$14+0x0000000840066040.apply", "Shop$$Lambda.apply"},
		{"lambda, JDK 21", "Shop$$Lambda/0x00007f5c1c000a00.apply", "Shop$$Lambda.apply"},
		{"hidden class", "LambdaForm$MH/0x00007f5c1c000a00.invoke", "LambdaForm$MH.invoke"},
		{"short number is a name", "a.0x12.b", "a.0x12.b"},
		{"long", strings.Repeat("a", 1<<20), strings.Repeat("a", maxLabel-3) + "…"},
		{"exactly full", strings.Repeat("a", maxLabel), strings.Repeat("a", maxLabel)},
		{"cut in a rune", "a" + strings.Repeat("é", maxLabel), "a" + strings.Repeat("é", (maxLabel-4)/2) + "…"},
		{"ours", "(other)", other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := label(tt.in); got != tt.want {
				t.Errorf("label(%.40q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
	if got := runtimeLabel(""); got != "native" {
		t.Errorf(`runtimeLabel("") = %q`, got)
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("java.util.HashMap.get")
	f.Add("Shop$$Lambda$14/0x0000000840066040.apply")
	f.Add(strings.Repeat("\xf0\x9f\x98\x80", 300))
	f.Add(strings.Repeat("\xff", 1000))
	f.Fuzz(func(t *testing.T, in string) {
		got := label(in)
		if got == "" || len(got) > maxLabel || !utf8.ValidString(got) {
			t.Errorf("label(%q) = %q: empty, longer than %d bytes or no UTF-8", in, got, maxLabel)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("label(%q) = %q holds %U", in, got, r)
			}
		}
	})
}
