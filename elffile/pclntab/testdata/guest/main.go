// Guest prints what the Go runtime has for addresses in its own code, one frame a line, a blank line behind each address.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sort"
)

type shape interface{ area() float64 }

type square struct{ side float64 }

func (s square) area() float64 { return times(s.side, s.side) }

func times(a, b float64) float64 { return a * b }

func largest[T any](all []T, less func(a, b T) bool) (best T) {
	for i, one := range all {
		if i == 0 || less(best, one) {
			best = one
		}
	}
	return best
}

//go:noinline
func sum(shapes []shape) (total float64) {
	for _, s := range shapes {
		total += func() float64 { return s.area() }()
	}
	return total + largest([]float64{total, 1}, func(a, b float64) bool { return a < b })
}

func main() {
	shapes := []shape{square{1}, square{2}}
	sort.Slice(shapes, func(i, j int) bool { return shapes[i].area() < shapes[j].area() })
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintf(os.Stderr, "%v\n", sum(shapes))
	fmt.Fprintf(out, "%s %#x\n", runtime.Version(), reflect.ValueOf(main).Pointer())
	for _, f := range []any{main, sum, sort.Slice, fmt.Fprintf, runtime.GC, (*bufio.Writer).Flush, (*bufio.Writer).WriteString, os.Open, square.area, (*square).area, shape.area} {
		entry := reflect.ValueOf(f).Pointer()
		for pc := entry; pc < entry+512 && runtime.FuncForPC(pc+1).Entry() == entry; pc += 3 {
			fmt.Fprintf(out, "%#x %s\n", pc, runtime.FuncForPC(entry).Name())
			frames := runtime.CallersFrames([]uintptr{pc + 1, entry}) // the last one is not expanded
			for frame, more := frames.Next(); more; frame, more = frames.Next() {
				fmt.Fprintf(out, "%s\t%s\t%d\n", frame.Function, frame.File, frame.Line)
			}
			fmt.Fprintln(out)
		}
	}
}
