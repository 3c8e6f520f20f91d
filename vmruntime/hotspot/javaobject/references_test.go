package javaobject

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Each class is looked through once, however many objects it has.
func TestFieldsOf(t *testing.T) {
	class, other := &Class{fields: make([]Field, 1000)}, &Class{}
	class.fields[999] = Field{Name: "name", Offset: 24}
	looked := 0
	got := FieldsOf([]uint64{0x1000, 0x2000, 0x3000, 0x4000}, []*Class{class, nil, other, class}, func(f Field) bool {
		looked++
		return f.Name == "name"
	})
	if want := []uint64{0x1018, 0, 0, 0x4018}; !slices.Equal(got, want) || looked != 1000 {
		t.Errorf("%#x after %d looks, want %#x", got, looked, want)
	}
}

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
	if long := javaText([]byte(strings.Repeat("\xe9", maxStringBytes)), false); len(long) > vmstructs.MaxNameBytes ||
		!utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
}
