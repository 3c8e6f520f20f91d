package symbolize

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestFunctionName(t *testing.T) {
	for _, test := range []struct{ mangled, want string }{
		{"_ZN10JavaThread3runEv", "JavaThread::run()"},
		{"_ZL19thread_native_entryP6Thread", "thread_native_entry(Thread*)"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvC6_123foo3bar", "123foo::bar"},
		{"memcpy", "memcpy"},
		{"_start", "_start"},
		{"_Znonsense", "_Znonsense"},
		{"_Z" + strings.Repeat("N", maxMangled), "_Z" + strings.Repeat("N", symbol.MaxName-5) + "…"},
	} {
		if got := functionName(test.mangled); got != test.want {
			t.Errorf("functionName(%q) = %q, want %q", test.mangled, got, test.want)
		}
	}
}

// FuzzFunctionName demangles arbitrary symbols.
func FuzzFunctionName(f *testing.F) {
	f.Add("_ZN10JavaThread3runEv")
	f.Add("_ZSt4moveIRSt6vectorIiSaIiEEEONSt16remove_referenceIT_E4typeEOS5_")
	f.Add("_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate")
	f.Add("_GLOBAL__sub_I__Z3foov")
	f.Fuzz(func(t *testing.T, mangled string) { checkClean(t, functionName(mangled)) })
}

// checkClean fails a test if a name is not fit for every output.
func checkClean(t *testing.T, name string) {
	t.Helper()
	if clean := symbol.CleanName(name); clean != name {
		t.Errorf("%q is not clean: want %q", name, clean)
	}
}
