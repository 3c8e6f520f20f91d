package hotspot

import (
	"fmt"
	"strings"
	"testing"
)

func TestNameTable(t *testing.T) {
	var table nameTable
	refs := make(map[string]nameRef)
	for i := range 5000 {
		s := fmt.Sprint(i % 1000)
		ref := table.add(s)
		if before, ok := refs[s]; ok && before != ref {
			t.Fatalf("%s is at %d and %d", s, before, ref)
		}
		refs[s] = ref
	}
	for _, s := range []string{"", strings.Repeat("y", maxNameBytes), "\x00"} {
		refs[s] = table.add(s)
	}
	for s, ref := range refs {
		if got := table.get(ref); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	}
	if table.count != 1003 {
		t.Errorf("%d strings, want 1003", table.count)
	}
}
