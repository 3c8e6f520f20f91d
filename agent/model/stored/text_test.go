package stored

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestThreeDigits(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 7: "7", 0.25: "0.25", 42.25: "42.2", 999: "999", 999.6: "1.00k", 1234: "1.23k", 203_020: "203k",
		12_345_678: "12.3M", 2.5e18: "2.50E",
	} {
		if got := ThreeDigits(value); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"", ""},
		{"java.util.HashMap.get", "java.util.HashMap.get"},
		{"std::map<int, \"x\">::operator[](int const&)", "std::map<int, \"x\">::operator[](int const&)"},
		{"größe.日本.שלום.सी", "größe.日本.שלום.सी"},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"nul\x00", `nul\x00`},
		{"\x1b[2Jgone", `\x1b[2Jgone`},
		{"\u202etxt.exe", `\u202etxt.exe`},
		{"half\xe2\x82", `half\xe2\x82`},
		{"\u0085\u00a0\ufeff", `\u0085\u00a0\ufeff`},
		{"\ufffd", "\ufffd"},
		{strings.Repeat("x", MaxName), strings.Repeat("x", MaxName)},
		{strings.Repeat("x", MaxName+1), strings.Repeat("x", MaxName-3) + "…"},
		{strings.Repeat("é", MaxName/2), strings.Repeat("é", MaxName/2)},
		{strings.Repeat("é", MaxName/2+1), strings.Repeat("é", MaxName/2-2) + "…"},
		{strings.Repeat("\x00", 1<<20), strings.Repeat(`\x00`, (MaxName-3)/4) + "…"},
	} {
		if got := Printable(test.name); got != test.want {
			t.Errorf("printable(%.40q…) = %.60q (%d bytes), want %.60q (%d bytes)", test.name, got, len(got), test.want,
				len(test.want))
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"plain", "a;b\nc", "\xff\xfe", "\u202e\u200b", strings.Repeat("\u65e5", 400)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := Printable(name)
		if len(got) > MaxName || !utf8.ValidString(got) {
			t.Fatalf("printable(%q) = %q", name, got)
		}
		for _, r := range got {
			if !strconv.IsPrint(r) {
				t.Fatalf("printable(%q) holds %q", name, r)
			}
		}
		if again := Printable(got); again != got {
			t.Fatalf("printable(%q) = %q and then %q", name, got, again)
		}
	})
}

func TestAbbreviate(t *testing.T) {
	for _, test := range []struct {
		name         string
		excess, last int
		want         string
	}{
		{"java.util.regex.Pattern.clazz", 0, 2, "java.util.regex.Pattern.clazz"},
		{"java.util.regex.Pattern.clazz", 1, 2, "j.util.regex.Pattern.clazz"},
		{"java.util.regex.Pattern.clazz", 99, 2, "j.u.r.Pattern.clazz"},
		{"java.util.regex.Pattern", 99, 1, "j.u.r.Pattern"},
		{"[inlined in java.util.regex.Pattern.clazz]", 99, 2, "[inlined in j.u.r.Pattern.clazz]"},
		{"[inlined in java.util.regex.Pattern.clazz", 99, 2, "[inlined in java.util.regex.Pattern.clazz"},
		{"[unknown libz.so.1.2+0x40]", 99, 2, "[unknown libz.so.1.2+0x40]"},
		{"std::map<a.b.c>::f(int)", 99, 2, "std::map<a.b.c>::f(int)"},
		{"byte[]", 99, 1, "byte[]"},
		{"", 9, 1, ""},
	} {
		if got := Abbreviate(test.name, test.excess, test.last); got != test.want {
			t.Errorf("%q, %d, %d: %q, want %q", test.name, test.excess, test.last, got, test.want)
		}
	}
}
