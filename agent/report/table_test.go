package report

import (
	"math"
	"testing"
	"unicode/utf8"
)

func TestDecimals(t *testing.T) {
	for _, test := range []struct {
		value float64
		want  string
	}{{1, "1.0000"}, {-0.5, "-0.5000"}, {0, "0.0000"}, {-1e-9, "0.0000"}, {math.NaN(), "-"}} {
		if got := decimals(test.value, 4); got != test.want {
			t.Errorf("decimals(%g) = %s, want %s", test.value, got, test.want)
		}
	}
}

func TestArrowed(t *testing.T) {
	for _, test := range []struct {
		caller, callee string
		width          int
		want           string
	}{
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 0, "com.acme.Shop.run:10 -> com.acme.Cart.total"},
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 43, "com.acme.Shop.run:10 -> com.acme.Cart.total"},
		{"com.acme.Shop.run:10", "com.acme.Cart.total", 24, "…op.run:10 -> …art.total"},
		{"main:1", "com.acme.Cart.total", 28, "main:1 -> c.acme.Cart.total"},              // leaves room to the callee
		{"com.acme.Cart.total:1", "f", 20, "…e.Cart.total:1 -> f"},                        // and the callee to the caller
		{"C::f(int, long)", "C::g(int, long)", 22, "C::f(…) -> C::g(…)"},                  // arguments go first
		{"ﬁﬂ.ﬃ.Äußerung.größe:7", "ﬁﬂ.ﬃ.Äußerung.weiß", 26, "…ng.größe:7 -> …erung.weiß"}, // runes, not bytes
	} {
		if got := arrowed(test.caller, test.callee, test.width); got != test.want {
			t.Errorf("arrowed(%q, %q, %d) = %q, want %q", test.caller, test.callee, test.width, got, test.want)
		}
	}
}

// Of events of equal weight the interval of a share is that of a binomial distribution.
func TestIntervals(t *testing.T) {
	const weight = 512.0
	events := func(n float64) tally {
		return tally{values: [3]float64{0, n * weight}, events: n, variance: n * weight * weight}
	}
	for _, test := range []struct{ part, rest float64 }{{10, 10}, {25, 75}, {100, 0}, {30, 9970}} {
		part, all := events(test.part), events(test.part)
		all.add(events(test.rest))
		n := test.part + test.rest
		s := test.part / n
		if got, want := part.shareInterval(1, all), 196*math.Sqrt(s*(1-s)/n); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: share ±%v, want ±%v", test, got, want)
		}
	}
	if nothing := (tally{}); nothing.shareInterval(1, nothing) != 0 {
		t.Error("nothing has an interval")
	}
}

func TestAmounts(t *testing.T) {
	for _, test := range []struct {
		scale scale
		value float64
		want  string
	}{
		{bytesScale, 0, "0B"}, {bytesScale, 999, "999B"}, {bytesScale, 1000, "1.0kB"}, {bytesScale, 34_275_951_772, "34.3GB"},
		{bytesScale, 1 << 62, "4.6EB"}, {bytesScale, 1e30, "1000000000000.0EB"},
		{timeScale, 999, "999ns"}, {timeScale, 1500, "1.50us"}, {timeScale, 2e6, "2.00ms"}, {timeScale, 90e9, "90.00s"},
	} {
		if got := test.scale.of(test.value); got != test.want {
			t.Errorf("%v is %s, want %s", test.value, got, test.want)
		}
	}
	for value, want := range map[float64]string{0: "0", 9999999: "9999999", 1e7: "10.00M", 1.5e12: "1.50T"} {
		if got := quantity(value); got != want {
			t.Errorf("quantity %v is %s, want %s", value, got, want)
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
		got := shorten(test.name, test.width)
		if got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.name, test.width, got, test.want)
		}
		if test.width > 0 && utf8.RuneCountInString(got) > test.width {
			t.Errorf("shorten(%q, %d) = %q is too long", test.name, test.width, got)
		}
	}
}

func TestManyOf(t *testing.T) {
	for _, test := range [][3]string{{"1", "samples", "1 sample"}, {"0", "samples", "0 samples"}, {"2", "calls", "2 calls"}, {"1.00k", "calls", "1.00k calls"}, {"1.0MB", "allocated", "1.0MB allocated"}} {
		if got := manyOf(test[0], test[1]); got != test[2] {
			t.Errorf("%q, want %q", got, test[2])
		}
	}
}
