package guests

import (
	"slices"
	"testing"
	"time"
)

// What the check in prologues costs while nothing is sampled, and what a call costs that a burst
// skips. Six guests take turns, so that other load of the machine hits all of them. If methods take
// about a nanosecond, the placement of their code makes more of a difference: the cost of a NOP of
// the check's length shows how much. The last two guests have yieldpoints of their own: one is
// built without vmprof.h, the other shares its check with the agent.
//
//	go test -run '^$' -bench VMCheck -benchtime 40x ./tests/guests
func BenchmarkVMCheck(b *testing.B) {
	vm := theVM(b)
	plain, err := BuildPlainVM(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, program := range []string{"skewed", "recursive", "virtual", "flat", "adversary"} {
		b.Run(program, func(b *testing.B) {
			bare := vm.start(b, VMOptions{Program: program, NoCheck: true})
			padded := vm.start(b, VMOptions{Program: program, Padded: true})
			checked := vm.start(b, VMOptions{Program: program})
			_, p, armed := connected(b, vm, program)
			yields := plain.start(b, VMOptions{Program: program, Shared: true})
			shared := vm.start(b, VMOptions{Program: program, Shared: true})

			first := segment(b, bare, 100)
			iterations := max(1, int(100*30*time.Millisecond/first.CPU))
			for _, r := range []*VMRun{padded, checked, armed, yields, shared} {
				segment(b, r, 100)
			}
			armed.graph(b)
			var bares, nops, checks, skips, own, both []float64
			for b.Loop() {
				p.arm(0, slot{Armed: 1, Skip: 1<<32 - 1, Left: 1, Stride: 1})
				bares = append(bares, float64(segment(b, bare, iterations).CPU))
				nops = append(nops, float64(segment(b, padded, iterations).CPU))
				checks = append(checks, float64(segment(b, checked, iterations).CPU))
				own = append(own, float64(segment(b, yields, iterations).CPU))
				both = append(both, float64(segment(b, shared, iterations).CPU))
				skips = append(skips, float64(segment(b, armed, iterations).CPU))
			}
			calls := armed.graph(b).Total() / float64(len(bares))
			b.ReportMetric(0, "ns/op") // a number for six guests: meaningless
			b.ReportMetric(median(bares)/calls, "ns/call")
			b.ReportMetric(median(nops)/median(bares), "nop/bare")
			b.ReportMetric(median(checks)/median(bares), "check/bare")
			b.ReportMetric(median(own)/median(bares), "yieldpoint/bare")
			b.ReportMetric(median(both)/median(own), "shared/yieldpoint")
			b.ReportMetric((median(skips)-median(checks))/calls, "ns/skipped-call")
		})
	}
}

func segment(b *testing.B, r *VMRun, iterations int) Segment {
	b.Helper()
	s, err := r.Run(iterations)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
