package sink

import (
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		name  string
		width int
		want  string
	}{
		{"java.util.HashMap.get", 0, "java.util.HashMap.get"},
		{"java.util.HashMap.get", 21, "java.util.HashMap.get"},
		{"java.util.HashMap.get", 20, "…va.util.HashMap.get"},
		{"Closure::do_oop(oopDesc**)", 20, "Closure::do_oop(…)"},
		{"G1ParScanThreadState::trim_queue(bool)", 20, "…tate::trim_queue(…)"},
		{"(anonymous namespace)::visit(int (*)(long)) const", 30, "…nonymous namespace)::visit(…)"},
		{"github.com/acme/shop.(*Cart[...]).Total", 20, "….(*Cart[...]).Total"},
		{"unbalanced)))))))))))", 20, "…balanced)))))))))))"},
		{"größe.größe.größe", 17, "größe.größe.größe"},
		{"größe.größe.größe", 16, "…öße.größe.größe"},
	} {
		got := shorten(test.name, test.width)
		if got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.name, test.width, got, test.want)
		}
		if test.width > 0 && utf8.RuneCountInString(got) > test.width {
			t.Errorf("shorten(%q, %d) = %q is too long", test.name, test.width, got)
		}
	}
}
