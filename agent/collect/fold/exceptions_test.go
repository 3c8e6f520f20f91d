package fold

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Stacks of exceptions begin with what creates them.
func TestWithoutConstructors(t *testing.T) {
	const fill, throwable, base = "java.lang.Throwable.fillInStackTrace", "java.lang.Throwable.<init>", "a.Base.<init>"
	for name, test := range map[string]struct{ stack, want []string }{
		"plain":                {[]string{fill, fill, throwable, base, "a.E.<init>", "a.E.<init>", "b.f"}, []string{"b.f"}},
		"created by another":   {[]string{fill, throwable, "a.E.<init>", "a.F.<init>", "b.f"}, []string{"a.F.<init>", "b.f"}},
		"filled in again":      {[]string{fill, "b.f"}, []string{"b.f"}},
		"constructor not seen": {[]string{fill, throwable, base, "b.f"}, []string{"b.f"}},
		"none":                 {nil, nil},
	} {
		var stack []symbol.Symbol
		for _, f := range test.stack {
			stack = append(stack, symbol.Intern(symbol.Frame{Function: f, Kind: symbol.KindJIT}))
		}
		var got []string
		for _, s := range withoutConstructors(stack, "a.E") {
			got = append(got, s.Function())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
