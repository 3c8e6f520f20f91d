package hotspot

import "testing"

// TestResolvingStubs: names of stubs as the VMs that were run have them, and what is no call of a method.
func TestResolvingStubs(t *testing.T) {
	for name, want := range map[string]bool{
		"resolve_opt_virtual_call":                  true,
		"resolve_virtual_call":                      true,
		"resolve_static_call":                       true,
		"Shared Runtime resolve_static_call_blob":   true,
		"wrong_method_stub":                         true,
		"wrong_method_abstract_stub":                true,
		"ic_miss_stub":                              true,
		"Shared Runtime wrong_method_abstract_blob": true,
		"Shared Runtime ic_miss_blob":               true,
		"UncommonTrapBlob":                          false,
		"DeoptimizationBlob":                        false,
		"native signature handlers":                 false,
		"deoptimize Runtime1 stub":                  false,
		"C1 Runtime predicate_failed_trap_blob":     false,
	} {
		if got := resolves(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
