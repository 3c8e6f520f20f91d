package cause

import (
	"slices"
	"strings"
)

// parking are how names of methods begin that are part of how threads of Java wait for each other, not of why.
var parking = [...]string{"jdk.internal.misc.Unsafe.park", "sun.misc.Unsafe.park", "java.util.concurrent."}

// waiting are the same of all other ways to wait.
var waiting = [...]string{
	"java.lang.Object.wait", "java.lang.Thread.sleep", "java.lang.Thread.join", "java.lang.ref.ReferenceQueue", "sun.nio.ch.", "java.nio.channels.", "java.net.", "java.io.",
}

// Parks reports whether a method is part of how threads of Java wait for each other, not of why.
func Parks(method string) bool {
	return slices.ContainsFunc(parking[:], func(begin string) bool { return strings.HasPrefix(method, begin) })
}

// Waits reports whether a method is part of how threads of Java wait, not of why.
func Waits(method string) bool {
	return Parks(method) || slices.ContainsFunc(waiting[:], func(begin string) bool { return strings.HasPrefix(method, begin) })
}
