package observed

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kernels.json")
	of := func(release, found string) Kernel { return Kernel{release, []Feature{{"probes", found}}} }
	for _, k := range []Kernel{of("6.12.1+deb13", "yes"), of("6.1.0-40", "maybe"), of("6.1.0-56", "no"),
		of("7.3.4", "yes")} {
		if err := Record(path, k); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(path)
	want := []Kernel{of("6.1.0-56", "no"), of("6.12.1+deb13", "yes"), of("7.3.4", "yes")}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %v, %v; want %v", got, err, want)
	}
	if known, ok := Find(got, of("6.1.200", "")); !ok || known.Release != "6.1.0-56" {
		t.Errorf("of 6.1.200 is known %v, %t", known, ok)
	}
	if known, ok := Find(got, of("6.10.1", "")); ok {
		t.Errorf("of 6.10.1 is known %v", known)
	}
	table := Markdown(append(got, Kernel{"6.18.1", nil}), map[string]string{"probes": "Nothing is seen."})
	for _, want := range []string{"| Feature | 6.1 | 6.12 | 7.3 | 6.18 | Without it |",
		"| probes | no | yes | yes | not tried | Nothing is seen. |"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestParse(t *testing.T) {
	k := Kernel{"6.1.0", []Feature{{"probes", "yes"}, {"lock", "spinlock_t"}}}
	if got, ok := Parse("=== RUN x\n    x_test.go:3: " + k.String() + "\n--- PASS: x (0s)\n"); !ok ||
		!reflect.DeepEqual(got, k) {
		t.Errorf("parsed %v, %t", got, ok)
	}
	if got, ok := Parse("observed nothing {}\nobserved {\n"); ok {
		t.Errorf("parsed %v", got)
	}
}
