package harness

import (
	"context"
	"fmt"
	"time"
)

// Work is what a guest does while other things are done. The guest is Work's alone until Finish
// returns.
type Work struct {
	stop context.CancelFunc
	done chan workEnd
}

// Worked is how much a guest did.
type Worked struct {
	Iterations int
	Wall       time.Duration
}

type workEnd struct {
	Worked
	err error
}

// StartWork has a guest work until Finish is called or ctx is done: runFor has it do whole
// iterations for about that long, and returns how many they were.
func StartWork(ctx context.Context, runFor func(time.Duration) (iterations int, err error)) Work {
	ctx, stop := context.WithCancel(ctx)
	w := Work{stop, make(chan workEnd, 1)}
	go func() {
		const atOnce = 200 * time.Millisecond
		var did workEnd
		for began := time.Now(); did.err == nil && ctx.Err() == nil; did.Wall = time.Since(began) {
			var n int
			n, did.err = runFor(atOnce)
			did.Iterations += n
		}
		w.done <- did
	}()
	return w
}

// Finish lets the guest end its iteration. It is to be called once.
func (w Work) Finish() (Worked, error) {
	w.stop()
	did := <-w.done
	if did.err != nil {
		return did.Worked, fmt.Errorf("work: %w", did.err)
	}
	return did.Worked, nil
}

// Iteration is how long one took on average.
func (w Worked) Iteration() time.Duration { return w.Wall / time.Duration(max(w.Iterations, 1)) }
