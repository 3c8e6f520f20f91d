//go:build linux && amd64

package bpf

import "testing"

// hostileStack is a thread's stack that looks like so many stubs, each of which takes the longest
// search for its caller: every word on the way there is in the code cache, but follows no call.
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

// A thread may write whatever it likes onto its stack. What the walk reads there in one interrupt
// is bounded.
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
			t.Errorf("%d frames: ended by %q after %d words, want %q after %d", test.frames, sample.End, words,
				test.end, test.words)
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

// A stack of frames none of which was met before: each one's code is found by steps through the
// VM's map, as many as the walk takes at most, and each lies in a piece of the stack of its own.
// One walk reads so much and no more; what it has learned is there for the next one.
func TestKernelUnknownFrames(t *testing.T) {
	const (
		frames, words = MaxUserFrames - 1, 512
		hops          = 23 // SEGMENT_HOPS takes one more, to the blob's first segment
	)
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	s := vm.newStack(t, (frames+2)*words*8)
	var b *blob
	for i := range frames {
		if i%hops == 0 {
			b = vm.newBlob(vm.NameNmethod, make([]byte, hops<<vm.SegmentShift), words, 0)
			first := (b.begin - vm.code.base) >> vm.SegmentShift
			for segment := uint64(1); segment < hops; segment++ {
				vm.segments.mem[first+segment] = 1 // back by one at a time
			}
		}
		s.compiled(b, uint64(i%hops)<<vm.SegmentShift+64)
	}
	const lookupBudget, blobWords = 8192, 11 // LOOKUP_BUDGET, BLOB_WORDS
	walks, got := 0, 0
	for got < frames {
		misses, fills := w.counter(t, SegmentMisses), w.counter(t, StackCopies)
		var sample Sample
		ns := w.walkInto(t, s.request(), &sample)
		misses, fills = w.counter(t, SegmentMisses)-misses, w.counter(t, StackCopies)-fills
		walks++
		t.Logf("%d frames, ended by %q: %d segments looked up, %d pieces of stack copied, %d ns", len(sample.User),
			sample.End, misses, fills, ns)
		if misses > lookupBudget/(blobWords+1) || fills > uint64(len(sample.User))+1 {
			t.Errorf("%d segments were looked up, %d pieces of stack copied", misses, fills)
		}
		if len(sample.User) <= got || len(sample.User) < frames && sample.End != EndScan {
			t.Fatalf("walk %d has %d frames, ended by %q; the one before had %d", walks, len(sample.User), sample.End,
				got)
		}
		got = len(sample.User)
	}
	if walks < 2 {
		t.Error("one walk read everything")
	}
}
