package recordings

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
)

// lookEvery is how many windows are recorded between two looks of --until=decided.
const lookEvery = 5

// leastRecording is how many windows of a second URLs are recorded for at least.
const leastRecording = audit.LeastWindows

// compareURLs records two addresses of serve, both at the same time, and compares them.
func (o *compareOptions) compareURLs(ctx context.Context, stdout, stderr io.Writer) error {
	var urls [2]served
	for side := range urls {
		var err error
		if urls[side], err = windowURL(o.sides[side][0]); err != nil {
			return err
		}
	}
	if urls[0] == urls[1] {
		fmt.Fprintln(stderr, "A and B are the same address: a difference would be the noise of the comparison")
	}
	var sides [2][]compare.Named
	o.opts.Looks = o.until
	for n := 1; n <= int(o.duration/time.Second); n++ {
		next, err := fetchBoth(ctx, urls)
		if err != nil {
			return err
		}
		for side := range sides {
			sides[side] = append(sides[side], next[side])
		}
		if o.until && n >= leastRecording && n%lookEvery == 0 {
			verdict, err := compare.Audit(io.Discard, sides[0], sides[1], &o.opts)
			if err != nil {
				return fmt.Errorf("compare profiles: %w", err)
			}
			if verdict != audit.Undecided {
				fmt.Fprintf(stderr, "decided after %d s\n", n)
				break
			}
		}
	}
	if _, err := compare.Audit(stdout, sides[0], sides[1], &o.opts); err != nil {
		return fmt.Errorf("compare profiles: %w", err)
	}
	return nil
}

// fetchBoth records the next second of both sides.
func fetchBoth(ctx context.Context, urls [2]served) (both [2]compare.Named, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	type answer struct {
		side  int
		named compare.Named
		err   error
	}
	answers := make(chan answer, len(urls))
	for side, address := range urls {
		go func() {
			named, err := fetchWindow(ctx, address)
			answers <- answer{side, named, err}
		}()
	}
	for range urls {
		a := <-answers
		if a.err != nil && err == nil { // the other side's may only be that it was cancelled
			err = a.err
			cancel()
		}
		both[a.side] = a.named
	}
	return both, err
}
