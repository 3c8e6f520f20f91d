//go:build linux && amd64

package bpf

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Entries and returns of the followed method, on a stack that the test writes: which invocations
// there were, and how each ended.
func TestKernelInvocations(t *testing.T) {
	const entry, exit = 0x1000, 0x1080
	spec, err := LoadInvocationTest()
	if err != nil {
		t.Fatal(err)
	}
	var o InvocationTestObjects
	needKernel(t, spec.LoadAndAssign(&o, nil))
	defer o.Close()
	stack := newRegion(t, 4096)
	type hit struct {
		pc    uint64
		depth uint64 // bytes on the stack
		back  uint64 // what is written to where the stack pointer is, as a call does; 0: nothing
	}
	enter := func(depth, back uint64) hit { return hit{entry, depth, back} }
	leave := func(depth uint64) hit { return hit{exit, depth, 0} }
	// call calls another method, which is not followed.
	call := func(depth, back uint64) hit { return hit{0, depth, back} }
	for _, test := range []struct {
		name   string
		hits   []hit
		want   []string // hits of the begin and the end, and how it ended
		counts InvocationCounts
	}{
		{"returns", []hit{enter(100, 7), leave(100), enter(100, 7), leave(100)},
			[]string{"0 1 returned", "2 3 returned"}, InvocationCounts{Entered: 2, Returned: 2}},
		{"recursion is a part", []hit{enter(100, 7), enter(200, 8), enter(300, 8), leave(300), leave(200), leave(100)},
			[]string{"0 5 returned"},
			InvocationCounts{Entered: 1, Returned: 1, Nested: 2}},
		{"recursion again and again", []hit{enter(100, 7), enter(200, 8), leave(200), enter(200, 9), leave(200),
			leave(100)}, []string{"0 5 returned"},
			InvocationCounts{Entered: 1, Returned: 1, Nested: 2}},
		{"thrown, then as far out", []hit{enter(100, 7), enter(100, 7), leave(100)},
			[]string{"0 1 unwound", "1 2 returned"}, InvocationCounts{Entered: 2, Returned: 1, Unwound: 1}},
		{"thrown, then further out", []hit{enter(100, 7), enter(60, 8), leave(60)},
			[]string{"0 1 unwound", "1 2 returned"}, InvocationCounts{Entered: 2, Returned: 1, Unwound: 1}},
		{"thrown, then further in, by another call of the caller",
			[]hit{enter(100, 7), call(100, 9), enter(200, 8), leave(200)}, []string{"0 2 unwound", "2 3 returned"},
			InvocationCounts{Entered: 2, Returned: 1, Unwound: 1}},
		{"thrown, then further in again and again", []hit{enter(100, 7), call(100, 9), enter(200, 8), leave(200),
			enter(200, 8), leave(200)},
			[]string{"0 2 unwound", "2 3 returned", "4 5 returned"},
			InvocationCounts{Entered: 3, Returned: 2, Unwound: 1}},
		{"thrown, then a return further out", []hit{enter(100, 7), leave(60)}, []string{"0 1 unwound"},
			InvocationCounts{Entered: 1, Unwound: 1}},
		{"begun before", []hit{leave(100), enter(100, 7), leave(100)}, []string{"1 2 returned"},
			InvocationCounts{Entered: 1, Returned: 1, Stray: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			runtime.LockOSThread() // what a thread is in is the thread's
			defer runtime.UnlockOSThread()
			pid, tid := uint32(os.Getpid()), uint32(unix.Gettid())
			_ = o.OpenInvocations.Delete(tid) // remainder of the test before
			if err := o.FollowedCode.Put(pid, &InvocationTestFollowed{StartTicks: startTicks(t),
				Addresses: [FollowedAddresses]uint64{entry, exit}, Entries: 1, Generation: 1}); err != nil {
				t.Fatal(err)
			}
			if err := o.InvocationSums.Put(pid, &InvocationTestInvocationCounts{}); err != nil {
				t.Fatal(err)
			}
			hits := uint64(0)
			for i, h := range test.hits {
				sp := stack.end() - 8 - h.depth&^7
				if h.back != 0 {
					stack.put64(sp, h.back)
				}
				if h.pc == 0 {
					continue
				}
				hits++
				q := InvocationTestInvocationRequest{Pc: h.pc, Sp: sp, Ran: uint64(i+1) * 10, Now: uint64(i+1) * 1000}
				if ret, err := o.PlayHit.Run(&ebpf.RunOptions{Context: &q}); err != nil || ret != 0 {
					t.Fatalf("hit %d: %d, %v", i, int32(ret), err)
				}
			}
			var got []string
			records(t, o.Events, func(raw []byte) {
				r, err := DecodeInvocation(raw)
				if err != nil {
					t.Fatal(err)
				}
				begin, end := int(r.Begun/1000)-1, int(r.Header.Time/1000)-1
				got = append(got, fmt.Sprint(begin, end, " ", [...]string{InvocationReturned: "returned",
					InvocationUnwound: "unwound"}[r.End]))
				if r.Known == 0 || r.Ran != uint64(end-begin)*10 || r.Header.Tid != tid {
					t.Errorf("%+v", r)
				}
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
			var c InvocationTestInvocationCounts
			if err := o.InvocationSums.Lookup(pid, &c); err != nil {
				t.Fatal(err)
			}
			counts := InvocationCounts{Entered: c.Entered, Returned: c.Returned, Unwound: c.Unwound, Nested: c.Nested,
				Stray: c.Stray}
			if counts != test.counts || c.Hits != hits || c.Lost != 0 || c.Refused != 0 {
				t.Errorf("%+v, want %+v", c, test.counts)
			}
		})
	}
}
