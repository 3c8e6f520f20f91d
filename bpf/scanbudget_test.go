//go:build linux && amd64

package bpf

import "testing"

// hostileStack is a thread's stack that looks like so many stubs, each of which takes the longest search for its caller:
// every word on the way there is in the code cache, but follows no call.
func hostileStack(t testing.TB, w *walker, frames int) *fakeStack {
	t.Helper()
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	stub := vm.newBlob(nameOther, make([]byte, 0x100), 0, 0)
	s := vm.newStack(t, frames*scanWords*8+4096)
	ra := stub.returnTo(0x80)
	s.frames = nil
	s.sp = s.mem.base
	s.bp = poison
	s.pc = ra
	for i := range uint64(frames * scanWords) {
		s.mem.put64(s.sp+8*i, stub.begin+0x20)
		if i%scanWords == scanWords-1 {
			s.mem.put64(s.sp+8*i, ra)
		}
	}
	return s
}

const scanWords, scanBudget = 96, 512 // SCAN_WORDS, SCAN_BUDGET

// A thread may write whatever it likes onto its stack. What the walk reads there in one interrupt is bounded.
func TestKernelScanBudget(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	for _, test := range []struct {
		frames int
		end    WalkEnd
		words  uint64
	}{
		{1, EndNoCode, 2 * scanWords}, // behind the last return address nothing is in the code cache
		{4, EndNoCode, 5 * scanWords},
		{MaxUserFrames, EndScan, scanBudget},
	} {
		s := hostileStack(t, w, test.frames)
		before := w.counter(t, WordsScanned)
		var sample Sample
		ns := w.walkInto(t, s.request(), &sample)
		words := w.counter(t, WordsScanned) - before
		t.Logf("%d frames: %d words, %d ns", test.frames, words, ns)
		if sample.End != test.end || words != test.words {
			t.Errorf("%d frames: ended by %q after %d words, want %q after %d", test.frames, sample.End, words, test.end, test.words)
		}
	}
	if !EndScan.Truncated() {
		t.Error("a walk that the budget ended is called whole")
	}
}

// What ends one walk leaves the next one all of its budget.
func TestKernelScanBudgetIsOfOneSample(t *testing.T) {
	w := newWalker(t)
	s := hostileStack(t, w, 4)
	for range 3 {
		if got := w.walk(t, s.request()); got.End != EndNoCode || len(got.User) != 5 {
			t.Fatalf("%d frames, ended by %q", len(got.User), got.End)
		}
	}
}
