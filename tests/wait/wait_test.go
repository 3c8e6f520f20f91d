package wait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	looks := 0
	if err := Until(t.Context(), time.Minute, "three looks", func() (bool, error) { looks++; return looks == 3, nil }); err != nil || looks != 3 {
		t.Errorf("%d looks, %v", looks, err)
	}
	never := func() (bool, error) { return false, nil }
	if err := Until(t.Context(), time.Millisecond, "the moon is blue", never); err == nil || !strings.Contains(err.Error(), "the moon is blue") {
		t.Errorf("after the limit: %v", err)
	}
	broken := errors.New("broken")
	if err := Until(t.Context(), time.Minute, "it", func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("what fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Until(ctx, time.Minute, "it", never); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	For(t, time.Minute, "at once", func() bool { return true })
}
