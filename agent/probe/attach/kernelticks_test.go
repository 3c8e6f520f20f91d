package attach

import (
	"maps"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestParseTickless(t *testing.T) {
	for _, test := range []struct {
		in   string
		want []int
		bad  bool
	}{
		{"\n", nil, false},
		{"(null)\n", nil, false},
		{"1-3,6\n", []int{1, 2, 3, 6}, false},
		{"all\n", nil, true},
	} {
		got, err := parseTickless(test.in)
		if cpus := slices.Sorted(maps.Keys(got)); !slices.Equal(cpus, test.want) || (err != nil) != test.bad {
			t.Errorf("%q: %v, %v, want %v", test.in, cpus, err, test.want)
		}
	}
}

// The kernel's tick comes at a rate that its configuration allows: 24 to 1,200 Hz.
func TestKernelHz(t *testing.T) {
	hz, err := KernelHz()
	if err != nil || hz < 24 || hz > 1200 {
		t.Errorf("%d Hz, %v", hz, err)
	}
}

func TestClockText(t *testing.T) {
	for _, c := range Clocks() {
		text, err := c.MarshalText()
		var read Clock
		if err := read.UnmarshalText(text); err != nil || read != c {
			t.Errorf("%q is read as %q, %v", text, read, err)
		}
		if err != nil {
			t.Error(err)
		}
	}
	var c Clock
	if err := c.UnmarshalText([]byte("tsc")); err == nil {
		t.Errorf("an unknown clock is read as %q", c)
	}
}

// What cannot sample says so before anything is loaded.
func TestKernelTicksRefused(t *testing.T) {
	hz, err := KernelHz()
	if err != nil {
		t.Fatal(err)
	}
	none := func(...string) map[string]bpf.CodeRange { return nil }
	if _, err := NewKernelTicks(nil, hz+1, none); err == nil {
		t.Error("samples above the rate of the kernel's tick")
	}
	if _, err := NewKernelTicks(nil, hz, none); err == nil {
		t.Error("kernel frames cannot be found, and nothing says so")
	}
}
