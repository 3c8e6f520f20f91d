package sink

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

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
		{strings.Repeat("x", maxName), strings.Repeat("x", maxName)},
		{strings.Repeat("x", maxName+1), strings.Repeat("x", maxName-3) + "…"},
		{strings.Repeat("é", maxName/2), strings.Repeat("é", maxName/2)},
		{strings.Repeat("é", maxName/2+1), strings.Repeat("é", maxName/2-2) + "…"},
		{strings.Repeat("\x00", 1<<20), strings.Repeat(`\x00`, (maxName-3)/4) + `\…`},
	} {
		if got := printable(test.name); got != test.want {
			t.Errorf("printable(%.40q…) = %.60q (%d bytes), want %.60q (%d bytes)", test.name, got, len(got), test.want, len(test.want))
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"plain", "a;b\nc", "\xff\xfe", "\u202e\u200b", strings.Repeat("\u65e5", 400)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := printable(name)
		if len(got) > maxName || !utf8.ValidString(got) {
			t.Fatalf("printable(%q) = %q", name, got)
		}
		for _, r := range got {
			if !strconv.IsPrint(r) {
				t.Fatalf("printable(%q) holds %q", name, r)
			}
		}
		if again := printable(got); again != got {
			t.Fatalf("printable(%q) = %q and then %q", name, got, again)
		}
	})
}
