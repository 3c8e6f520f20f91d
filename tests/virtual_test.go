package tests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// TestVirtualThreads: a virtual thread that has yielded has all of its calls and those of its
// carrier, though its outer frames are on the heap. JDK 21 keeps them there in another form than
// later ones.
func TestVirtualThreads(t *testing.T) {
	needs.Root(t, "sampling")
	program := guests.Virtuals()
	installed := needs.JDKs(t)
	newest := installed[len(installed)-1]
	for _, jdk := range append(needs.Fetched(t, "21"), newest) {
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) { checkVirtualThreads(t, jdk, program) })
	}
}

func checkVirtualThreads(t *testing.T, jdk jvm.JDK, program guests.Program) {
	if jdk.Version < program.MinJDK {
		needs.Missing(t, fmt.Sprintf("%v has no virtual threads: install JDK %d or later", jdk, program.MinJDK))
	}
	guest, err := guests.Start(t.Context(), jdk, program, guests.Flavour{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	p := recordWork(t, guest.PID(), 1500*time.Millisecond)
	for work, caller := range map[string]string{"shift": "enterShift", "scale": "enterScale"} {
		const calls = 31 // Virtuals.CALLS and the outermost one
		working := func(s stacks.Stack) bool { return s.Has("guest.Virtuals." + work) }
		right := func(s stacks.Stack) bool {
			return s.Truncated() == "" && s.Times("guest.Virtuals."+caller) == calls &&
				s.Has("jdk.internal.vm.Continuation.enterSpecial") &&
				s.Has("java.util.concurrent.ForkJoinWorkerThread.run")
		}
		own := stacks.OnThread(notCutByTime(t, stacks.FromProfile(p)), program.Thread)
		all := stacks.Count(own, working)
		whole := stacks.Count(own, func(s stacks.Stack) bool { return working(s) && right(s) })
		t.Logf("%s: %d of %d stacks have all calls", work, whole, all)
		const least = 0.99 // nothing is copied while this works, but a collector may move the frames
		if all == 0 || float64(whole) < least*float64(all) {
			t.Errorf("%s: %d of %d stacks have all calls of %s", work, whole, all, caller)
			const shown = 5
			wrong := slices.DeleteFunc(slices.Clone(own), func(s stacks.Stack) bool { return !working(s) || right(s) })
			for _, s := range wrong[:min(len(wrong), shown)] {
				t.Logf("%d times: %v", s.Count, s)
			}
		}
	}
}
