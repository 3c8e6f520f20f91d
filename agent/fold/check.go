package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// rightCallers reports whether a context that was found has the callers of the one that was walked, by ContextLevels.
func rightCallers[F any](found, walked []F, same func(a, b F) bool) (right [len(profile.ContextLevels)]bool) {
	for i, levels := range profile.ContextLevels {
		right[i] = SameCallers(found, walked, levels, same)
	}
	return right
}

// SameCallers reports whether two stacks, innermost frame first, have the same callers for so many levels, 0 for all, or to
// the outermost frame if that is nearer.
func SameCallers[F any](a, b []F, levels int, same func(a, b F) bool) bool {
	for i := 1; levels == 0 || i <= levels; i++ {
		if i >= len(a) || i >= len(b) {
			return len(a) == len(b)
		}
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameCall compares two callers, wherever they stand.
func sameCall(a, b activation) bool { return a.Method == b.Method && a.Site == b.Site }
