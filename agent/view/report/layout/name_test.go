package layout

import (
	"testing"
	"unicode/utf8"
)

func TestArrowed(t *testing.T) {
	for _, test := range []struct {
		caller, callee string
		width          int
		want           string
	}{
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 0, "com.acme.Shop.run:10 -> com.acme.Cart.total"},
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 43, "com.acme.Shop.run:10 -> com.acme.Cart.total"},
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 24, "…op.run:10 -> …art.total"},
		{"main:1", "com.acme.Cart.total", 28, "main:1 -> c.acme.Cart.total"}, // leaves room to the callee
		// and the callee to the caller
		{"com.acme.Cart.total:1", "f", 20, "…e.Cart.total:1 -> f"},
		{"C::f(int, long)", "C::g(int, long)", 22, "C::f(…) -> C::g(…)"},                  // arguments go first
		{"ﬁﬂ.ﬃ.Äußerung.größe:7", "ﬁﬂ.ﬃ.Äußerung.weiß", 26, "…ng.größe:7 -> …erung.weiß"}, // runes, not bytes
	} {
		if got := Arrowed(test.caller, test.callee, test.width); got != test.want {
			t.Errorf("arrowed(%q, %q, %d) = %q, want %q", test.caller, test.callee, test.width, got, test.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		name  string
		width int
		want  string
	}{
		{"java.util.HashMap.get", 0, "java.util.HashMap.get"},
		{"java.util.HashMap.get", 21, "java.util.HashMap.get"},
		{"java.util.HashMap.get", 20, "j.util.HashMap.get"},
		{"java.util.concurrent.ConcurrentHashMap.get", 20, "…ncurrentHashMap.get"},
		{"execute_command_internal", 20, "…te_command_internal"},
		{"[inlined in java.util.regex.Pattern.clazz]", 38, "[inlined in j.u.regex.Pattern.clazz]"},
		{"[inlined in java.util.regex.Pattern.clazz]", 32, "[inlined in j.u.r.Pattern.clazz]"},
		{"[inlined in com.newuser.shop.Main.lambda$main$5]", 31, "[inlined in …ain.lambda$main$5]"},
		{"[inlined in com.newuser.shop.Main.lambda$main$5]", 20, "[inlined in …main$5]"},
		{"[inlined in com.newuser.shop.Main.lambda$main$5]", 19, "…ain.lambda$main$5]"},
		{"[unknown libz.so.1.2.13+0x4970]", 20, "…z.so.1.2.13+0x4970]"},
		{"Closure::do_oop(oopDesc**)", 20, "Closure::do_oop(…)"},
		{"G1ParScanThreadState::trim_queue(bool)", 20, "…tate::trim_queue(…)"},
		{"(anonymous namespace)::visit(int (*)(long)) const", 30, "…nonymous namespace)::visit(…)"},
		{"github.com/acme/shop.(*Cart[...]).Total", 20, "….(*Cart[...]).Total"},
		{"unbalanced)))))))))))", 20, "…balanced)))))))))))"},
		{"größe.größe.größe", 17, "größe.größe.größe"},
		{"größe.größe.größe", 16, "g.größe.größe"},
	} {
		got := Shorten(test.name, test.width)
		if got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.name, test.width, got, test.want)
		}
		if test.width > 0 && utf8.RuneCountInString(got) > test.width {
			t.Errorf("shorten(%q, %d) = %q is too long", test.name, test.width, got)
		}
	}
}

// Emoji and letters of East Asia take two columns.
func TestWideNames(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{KeepEnd("worker-🔥🔥🔥", 5), "…🔥🔥"},
		{KeepEnd("worker-🔥🔥🔥", 4), "…🔥"},
		{KeepEnd("漢字", 4), "漢字"},
		{KeepStart("漢字漢字", 6), "漢字…"},
		{KeepStart("漢字漢字", 1), "…"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
	if n := Columns("a🔥漢"); n != 5 {
		t.Errorf("%d columns", n)
	}
}
