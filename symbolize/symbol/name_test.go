package symbol

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanName(t *testing.T) {
	long := strings.Repeat("a", MaxName)
	for _, test := range []struct{ name, want string }{
		{"", ""},
		{"JavaThread::run()", "JavaThread::run()"},
		{`C:\tmp`, `C:\tmp`},
		{"größe_日本", "größe_日本"},
		{"line\nbreak\ttab\x1b[31m\x00", `line\nbreak\ttab\x1b[31m\x00`},
		{"bad\xffutf8\xc3", `bad\xffutf8\xc3`},
		{"\u0085\u2028right\u202eleft\U000e0001", `\u0085\u2028right\u202eleft\U000e0001`},
		{"a\u00a0b\u200bc\ue000", `a\u00a0b\u200bc\ue000`},
		{"\ufffd", "\ufffd"},
		{"🔥hot", "🔥hot"},
		{"\xed\xa0\xbd\xed\xb4\xa5hot", "🔥hot"},                  // as HotSpot gives it to the kernel
		{"\xed\xb4\xa5\xed\xa0\xbd", `\xed\xb4\xa5\xed\xa0\xbd`}, // halves in the wrong order
		{"\xed\xae\x80\xed\xb0\x80", `\xed\xae\x80\xed\xb0\x80`}, // a pair that is not printable
		{long, long},
		{long + "a", long[:MaxName-3] + "…"},
		{long[:MaxName-4] + "ééé", long[:MaxName-4] + "…"},
		{long[:MaxName-1] + "\n", long[:MaxName-3] + "…"},
	} {
		if got := CleanName(test.name); got != test.want {
			t.Errorf("CleanName(%q) = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestCommName(t *testing.T) {
	for _, test := range []struct{ comm, want string }{
		{"worker\x00xxx", "worker"},
		{"0123456789abcde\x00", "0123456789abcde"},
		{"日本語スレ\x00", "日本語スレ"},
		{"a日本語スレ"[:15] + "\x00", "a日本語ス"},                       // a character was cut
		{"long-name-\xed\xa0\xbd\xed\xb4\x00", "long-name-"},    // and half of a pair
		{"long-name\xed\xa0\xbd\xed\xb4\xa5\x00", "long-name🔥"}, // a whole one
		{"long-name-123\xed\xa0\x00", "long-name-123"},          // and of a half
		{"bad\xff\x00", `bad\xff`},                              // not the kernel's fault
	} {
		if got := CommName([]byte(test.comm)); got != test.want {
			t.Errorf("CommName(%q) = %q, want %q", test.comm, got, test.want)
		}
	}
}

// FuzzCleanName checks that the result is fit for every output, and that cleaning again changes
// nothing.
func FuzzCleanName(f *testing.F) {
	for _, name := range []string{"a", "\n", "\xff", "é\u202e", strings.Repeat("é\x00", MaxName)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		checkClean(t, CleanName(name))
		if once := CleanName(name); CleanName(once) != once {
			t.Errorf("CleanName(%q) = %q is not stable", name, once)
		}
	})
}

func checkClean(t *testing.T, name string) {
	t.Helper()
	if len(name) > MaxName || !utf8.ValidString(name) || strings.ContainsFunc(name,
		func(r rune) bool { return !strconv.IsPrint(r) }) {
		t.Errorf("%q is not clean (%d bytes)", name, len(name))
	}
}
