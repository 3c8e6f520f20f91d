package hotspot

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

func TestFinder(t *testing.T) {
	loaded := []vmruntime.Frame{
		{Function: "com.acme.Search.find", Signature: "()V"}, {Function: "com.acme.Search.find", Signature: "(I)V"},
		{Function: "com.acme.Search.close", Signature: "()V"},
		{Function: "com.acme.Cart.total", Signature: "()I"}, {}, {Function: "main"},
	}
	for _, test := range []struct{ method, want string }{
		{"com.acme.Search.close", "{true true []}"},
		{"com.acme.Search.find", "{true true []}"},
		{"com.acme.Search.find(I)V", "{true true []}"},
		{"com.acme.Search.find(J)V", "{false true [com.acme.Search.find()V com.acme.Search.find(I)V]}"},
		{"com.acme.Search.fnid", "{false true [com.acme.Search.find]}"},
		{"com.acme.Basket.total", "{false false [com.acme.Cart.total]}"},
		{"org.other.Nothing.here", "{false false []}"},
	} {
		m, err := ParseMethod(test.method)
		if err != nil {
			t.Fatal(err)
		}
		f := newFinder(m)
		for i := range loaded {
			f.add(&loaded[i])
		}
		if got := fmt.Sprint(f.known()); got != test.want {
			t.Errorf("%s: %s, want %s", test.method, got, test.want)
		}
	}
}
