package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestReadTimerInterrupts(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       uint64 // 0: an error
	}{
		{"x86-64", "           CPU0       CPU1\n  4:   9  0   IO-APIC   4-edge  ttyS0\nLOC:   100   23   Local timer " +
			"interrupts\n", 123},
		{"arm64", "        CPU0   CPU1\n 11:   7   5   GICv3  27 Level     arch_timer\n 12:   1   1   GICv3  33 " +
			"Level     uart-pl011\n", 12},
		{"none", "CPU0\n", 0},
	} {
		got, err := readTimerInterrupts(strings.NewReader(test.text))
		if got != test.want || (err != nil) != (test.want == 0) {
			t.Errorf("%s: %d, %v, want %d", test.name, got, err, test.want)
		}
	}
}

func TestCompareSamples(t *testing.T) {
	timer := slices.Concat(slices.Repeat([]string{"a"}, 1000), slices.Repeat([]string{"b"}, 1000))
	for _, test := range []struct {
		name        string
		tick        []string
		least, most float64 // bounds of the difference
	}{
		{"the same", slices.Concat(slices.Repeat([]string{"a"}, 500), slices.Repeat([]string{"b"}, 500)), -1, 2},
		{"twice as much of one", slices.Concat(slices.Repeat([]string{"a"}, 667), slices.Repeat([]string{"b"}, 333)),
			-20, -13},
		{"nothing in common", slices.Repeat([]string{"c"}, 1000), -100, -95},
	} {
		c := compareSamples(test.tick, slices.Clone(timer), 100)
		if by := c.tick - c.itself; by < test.least || by > test.most || c.samples != 1000 {
			t.Errorf("%s: %d samples, %+.1f points, want %v to %v", test.name, c.samples, by, test.least, test.most)
		}
	}
}

func TestMeanOf(t *testing.T) {
	// Squares of the differences: 26 in sum. Student's t with seven degrees of freedom: 2.365.
	m := meanOf([]float64{3, 7, 3, 7, 5, 5, 5 - 2*math.Sqrt(1.25), 5 + 2*math.Sqrt(1.25)})
	if math.Abs(m.mean-5) > 1e-9 || math.Abs(m.half-2.365*math.Sqrt(26./7/8)) > 0.01 {
		t.Errorf("%v", m)
	}
	if one := meanOf([]float64{5}); !math.IsNaN(one.half) && !math.IsInf(one.half, 1) {
		t.Errorf("one figure: %v", one)
	}
}
