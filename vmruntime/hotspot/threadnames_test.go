package hotspot

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

func TestJavaText(t *testing.T) {
	for _, test := range []struct {
		text string
		wide bool
		want string
	}{
		{"http-nio-8080-exec-1", false, "http-nio-8080-exec-1"},
		{"caf\xe9", false, "café"},
		{"a\x00\x01", false, "a\ufffd\ufffd"},
		{"\x42\x30\x0a\x00", true, "あ\ufffd"},
		{"\x3d\xd8", true, "\ufffd"},
		{"x", true, ""},
		{"", false, ""},
	} {
		if got := javaText([]byte(test.text), test.wide); got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
	if long := javaText([]byte(strings.Repeat("\xe9", maxThreadName)), false); len(long) > vmstructs.MaxNameBytes || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
}
