//go:build linux && amd64

package bpf

import (
	"fmt"
	"testing"
)

// What a walk costs in the kernel, by depth, with warm caches. ns/op is the round trip through the
// system call and tells nothing; ns/walk is for comparing one day with another on one machine.
func BenchmarkKernelWalk(b *testing.B) {
	w := newWalker(b)
	pinned(b)
	for _, kind := range []string{"compiled", "interpreted", "redefinable", "native", "tabled"} {
		for _, depth := range []int{10, 20, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", kind, depth), func(b *testing.B) {
				vm := newFakeVM(b, builds[1])
				w.attach(b, vm)
				s := vm.newStack(b, 1<<20)
				switch kind {
				case "compiled":
					s.entry(anchor{})
					versions := make([]*blob, 64)
					for i := range versions {
						versions[i] = vm.typical(48 + int32(i)/8*16)
					}
					for i := range depth {
						s.compiled(versions[i%len(versions)], 0x40)
					}
				case "interpreted", "redefinable":
					vm.mayRedefine(kind == "redefinable")
					w.update(b, vm)
					s.entry(anchor{})
					methods := make([]method, 64)
					for i := range methods {
						methods[i] = vm.newMethod(10)
					}
					for i := range depth {
						s.interpreted(methods[i%len(methods)], 3)
					}
					s.at(methods[(depth-1)%len(methods)], 3)
				case "native":
					s = nativeStack(b, depth)
				case "tabled":
					w.useRules(b, 0, nil)
					s = rootedStack(b)
					for i := range depth - 1 {
						rule := []uint32{rulePlain, rulePushed, ruleFramed}[i%3]
						s.unwindsAt(codeOf(rule)-uint64(i)%60, rule)
					}
				}
				s.check(b, w, s.request(), EndRoot)
				var sum uint64
				var sample Sample
				for b.Loop() {
					sum += w.walkInto(b, s.request(), &sample)
				}
				b.ReportMetric(float64(sum)/float64(b.N), "ns/walk")
				b.ReportMetric(float64(sum)/float64(b.N)/float64(depth), "ns/frame")
			})
		}
	}
}
