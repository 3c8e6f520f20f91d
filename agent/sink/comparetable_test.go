package sink

import "testing"

func TestArrowed(t *testing.T) {
	for _, test := range []struct {
		caller, callee string
		width          int
		want           string
	}{
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 0, "com.acme.Shop.run:10 -> com.acme.Cart.total"},
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 43, "com.acme.Shop.run:10 -> com.acme.Cart.total"},
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 24, "…op.run:10 -> …art.total"},
		{"main:1", "com.acme.Cart.total", 28, "main:1 -> …m.acme.Cart.total"},             // leaves room to the callee
		{"com.acme.Cart.total:1", "f", 20, "…e.Cart.total:1 -> f"},                        // and the callee to the caller
		{"C::f(int, long)", "C::g(int, long)", 22, "C::f(…) -> C::g(…)"},                  // arguments go first
		{"ﬁﬂ.ﬃ.Äußerung.größe:7", "ﬁﬂ.ﬃ.Äußerung.weiß", 26, "…ng.größe:7 -> …erung.weiß"}, // runes, not bytes
	} {
		if got := arrowed(test.caller, test.callee, test.width); got != test.want {
			t.Errorf("arrowed(%q, %q, %d) = %q, want %q", test.caller, test.callee, test.width, got, test.want)
		}
	}
}
