package stored_test

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

func TestNear(t *testing.T) {
	methods := strings.Fields("com.acme.Search.find com.acme.Search.findAll com.acme.Search.close " +
		"com.acme.Cart.total com.acme.Cart.total org.other.Search.find java.util.Map.get main f com.acme.Search.<init>")
	for _, test := range []struct{ wanted, want string }{
		{"com.acme.Search.fnid", "com.acme.Search.find org.other.Search.find"},
		{"com.acme.search.find", "com.acme.Search.find org.other.Search.find"},
		{"com.acme.Search.nothing", "com.acme.Search.close com.acme.Search.find com.acme.Search.findAll"},
		{"Search.findAll", "com.acme.Search.findAll com.acme.Search.find org.other.Search.find"},
		{"com.acme.Basket.total", "com.acme.Cart.total"},
		{"com.acme.Shop.checkout", ""},
		{"", ""},
		{"mian", "main"},
	} {
		if got := strings.Join(stored.Near(methods, test.wanted, 3), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.wanted, got, test.want)
		}
	}
}

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3},
		{"recrod", "record", 2},
		{strings.Repeat("x", 1000), "", 32},
	} {
		if got := stored.Edits(tt.a, tt.b); got != tt.want {
			t.Errorf("Edits(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
