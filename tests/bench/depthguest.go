package main

import (
	"context"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A deepGuest is a running tests/guests/java/guest/Depth.java: it keeps all CPUs busy at the bottom of a recursion of
// compiled calls.
type deepGuest struct {
	*jvm.Guest
}

func startDeep(ctx context.Context, jdk jvm.JDK) (deepGuest, error) {
	classes, err := guests.Compile(ctx, jdk)
	if err != nil {
		return deepGuest{}, err
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK: jdk,
		// A frame for each call, and nobody who works beside it.
		Flags:     []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,guest.Depth::*", "-XX:+UseSerialGC"},
		Classpath: []string{classes},
		Main:      "guest.Depth",
	})
	if err != nil {
		return deepGuest{}, fmt.Errorf("start the guest of known depth: %w", err)
	}
	return deepGuest{guest}, nil
}

// goTo has all threads work below so many calls, and returns when they do.
func (g deepGuest) goTo(calls int) error {
	_, err := g.Order(fmt.Sprintf("depth %d", calls))
	return err
}

// rest has no thread work.
func (g deepGuest) rest() error { return g.goTo(0) }

// maxMoreFrames is how many frames there may be beside those of the recursion: what begins the thread, holds it there and
// works, and no more than that again.
const maxMoreFrames = 16

// checkDepth returns an error unless walked stacks have as many frames as there are calls. Those on the way down, and
// walks that end early, must not be worth mentioning.
func checkDepth(calls int, frames float64) error {
	if frames < 0.9*float64(calls) || frames > float64(calls+maxMoreFrames) {
		return fmt.Errorf("below %d calls stacks have %.1f frames", calls, frames)
	}
	return nil
}
