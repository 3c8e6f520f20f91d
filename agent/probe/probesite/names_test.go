package probesite

import (
	"testing"
)

// The unmangled name matches the symbol.
func TestUnmangled(t *testing.T) {
	for symbol, plain := range map[string]string{
		"_ZN13ObjectMonitor5enterEP10JavaThread": "ObjectMonitor::enter",
		"_ZNK5Klass13external_nameEv":            "Klass::external_name",
		"_Z5startv":                              "start",
		"_ZL6helperi":                            "helper",
		"_ZN1A1BIiE1cEv":                         "",
		"_ZN1AC1Ev":                              "",
		"_ZN1A1f":                                "",
		"_Z":                                     "",
		"_Z99999999999999999999x":                "",
		"_ZN9999":                                "",
		"malloc":                                 "",
		"_ZN14AllocTracer33send_allocation_in_new_tlabEP5KlassP8HeapWordmmP6Thread": "",
	} {
		got := unmangled(symbol)
		if got != plain {
			t.Errorf("%s: %q, want %q", symbol, got, plain)
		}
		w := want(got)
		if r, _ := w.is(symbol); got != "" && r != itself {
			t.Errorf("%s does not mean %s", got, symbol)
		}
	}
}

func FuzzUnmangled(f *testing.F) {
	f.Add("_ZN1A1fEv")
	f.Add("_Z1fv")
	f.Fuzz(func(t *testing.T, symbol string) {
		plain := unmangled(symbol)
		w := want(plain)
		if r, _ := w.is(symbol); plain != "" && r == unrelated {
			t.Errorf("%q does not mean %q", plain, symbol)
		}
	})
}
