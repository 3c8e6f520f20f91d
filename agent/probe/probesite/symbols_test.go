package probesite

import "testing"

func TestWanted(t *testing.T) {
	const enter = "_ZN13ObjectMonitor5enterEP10JavaThread"
	for _, test := range []struct {
		name, symbol string
		role         role
		clone        string
	}{
		{"memcpy", "memcpy", itself, ""},
		{"memcpy", "memcpy@@GLIBC_2.14", itself, ""},
		{"memcpy", "wmemcpy", unrelated, ""},
		{"memcpy", "memcpy_s", unrelated, ""},
		{"f", "f.lto_priv.0", itself, ""},
		{"f", "f.constprop.0", copied, "constprop"},
		{"f", "f.isra.0", copied, "isra"},
		{"f", "f.isra.0.constprop.1", copied, "constprop"},
		{"f", "f.part.0", part, ""},
		{"f", "f.isra.0.part.3", part, ""},
		{"f", "f.part.0.isra.0", part, ""},
		{"f", "f.cold", cold, ""},
		{"f", "f.constprop.0.cold", cold, ""},
		{"f.part.0", "f.part.0", itself, ""},
		{"f.part.0", "f", unrelated, ""},
		{"f.part.0", "f.part.0.cold", unrelated, ""},
		{enter, enter, itself, ""},
		{enter, enter + ".cold", cold, ""},
		{enter, "_ZN13ObjectMonitor5enterEP6Thread", unrelated, ""},
		{"ObjectMonitor::enter", enter, itself, ""},
		{"ObjectMonitor::enter", "_ZN13ObjectMonitor5enterEP6Thread", itself, ""},
		{"ObjectMonitor::enter", "_ZNK13ObjectMonitor5enterEv", itself, ""},
		{"ObjectMonitor::enter", enter + ".part.0", part, ""},
		{"ObjectMonitor::enter", "_ZN13ObjectMonitor5enterE", unrelated, ""}, // a variable
		{"ObjectMonitor::enter", "_ZN13ObjectMonitor9enter_forEP10JavaThread", unrelated, ""},
		{"ObjectMonitor::enter", "_ZN7Another13ObjectMonitor5enterEv", unrelated, ""},
		{"enter", enter, unrelated, ""},
		{"report", "_Z6reportPKc", itself, ""},
		{"report", "_ZL6reportPKc", itself, ""},
		{"report", "_Z7reportsPKc", unrelated, ""},
		{"A::", "_ZN1A0E", unrelated, ""},
		{"", "", itself, ""},
	} {
		w := want(test.name)
		if r, clone := w.is(test.symbol); r != test.role || clone != test.clone {
			t.Errorf("%q is %d, %q to %q; want %d, %q", test.symbol, r, clone, test.name, test.role, test.clone)
		}
	}
}

func FuzzWanted(f *testing.F) {
	f.Add("A::b", "_ZN1A1bEv.part.0")
	f.Add("f", "f.constprop.0.cold")
	f.Fuzz(func(t *testing.T, name, symbol string) {
		w := want(name)
		r, clone := w.is(symbol)
		if clone != "" && r != copied {
			t.Errorf("%q is %d, %q to %q", symbol, r, clone, name)
		}
		if symbol == name && r == unrelated {
			t.Errorf("%q is not itself", name)
		}
	})
}
