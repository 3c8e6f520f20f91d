// Package wait waits until something is true.
package wait

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Long is how long to wait for what takes a second, or on a busy machine a minute.
const Long = 3 * time.Minute

// interval is the pause between two looks.
const interval = 20 * time.Millisecond

// Until waits until is returns true. It fails after the limit, with an error that names what was
// waited for, when is fails, and when ctx is done.
func Until(ctx context.Context, limit time.Duration, what string, is func() (bool, error)) error {
	for deadline := time.Now().Add(limit); ; {
		if done, err := is(); done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", limit, what)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for: %s: %w", what, ctx.Err())
		case <-time.After(interval):
		}
	}
}

// For waits until is returns true, and ends the test if that does not happen within the limit.
func For(t testing.TB, limit time.Duration, what string, is func() bool) {
	t.Helper()
	if err := Until(t.Context(), limit, what, func() (bool, error) { return is(), nil }); err != nil {
		t.Fatal(err)
	}
}
