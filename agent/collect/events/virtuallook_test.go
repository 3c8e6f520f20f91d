package events

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A movingLister has one virtual thread, which so many collections move while it is read.
type movingLister struct{ moves, reads int }

func (l *movingLister) Collections() (uint64, error) { return uint64(l.reads), nil }

func (l *movingLister) VirtualThreads(int, func(int) int) ([]vmruntime.VirtualThread, error) {
	return []vmruntime.VirtualThread{{ID: 7, Weight: 1}}, nil
}

func (l *movingLister) DescribeVirtual([]vmruntime.VirtualWords, uint64) ([]vmruntime.VirtualDoing, error) {
	doing := []vmruntime.VirtualDoing{{State: vmruntime.VirtualParked}}
	if l.reads++; l.reads <= l.moves {
		return doing, fmt.Errorf("moved: %w", vmruntime.ErrMoved)
	}
	return doing, nil
}

// Virtual threads are read again if a collection moves them, and are not lost if it always does.
func TestDrawVirtualThatMove(t *testing.T) {
	for moves, reads := range map[int]int{0: 1, 1: 2, virtualTries: virtualTries, 100: virtualTries} {
		l := &movingLister{moves: moves}
		threads, collections, err := drawVirtual(l, 1)
		if err != nil || len(threads) != 1 || threads[0].ID != 7 || l.reads != reads || collections != uint64(reads-1) {
			t.Errorf("%d collections: %+v after %d readings, the last after %d, %v", moves, threads, l.reads, collections, err)
		}
	}
}
