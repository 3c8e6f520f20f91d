package cause

import (
	"slices"
	"strings"
)

// waiting are how names of methods of the class library begin that are part of how threads wait,
// not of why.
var waiting = [...]string{
	"jdk.internal.misc.Unsafe.park", "jdk.internal.misc.Unsafe.unpark", "sun.misc.Unsafe.park",
	"sun.misc.Unsafe.unpark",
	"java.util.concurrent.", "java.lang.Object.wait", "java.lang.Thread.sleep", "java.lang.Thread.join",
	// virtual threads
	"jdk.internal.vm.Continuation.", "java.lang.VirtualThread.", "java.lang.System$",
	"jdk.internal.misc.VirtualThreads.",
	"java.lang.ref.ReferenceQueue", "sun.nio.ch.", "java.nio.channels.", "java.net.", "java.io.",
}

// Waits reports whether a method of the class library is part of how threads wait, not of why. It
// tells threads of the class library apart, whose stacks have no method of the application.
func Waits(method string) bool {
	return slices.ContainsFunc(waiting[:], func(begin string) bool { return strings.HasPrefix(method, begin) })
}
