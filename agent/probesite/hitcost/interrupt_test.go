//go:build linux

package hitcost

import (
	"errors"
	"testing"
	"time"
)

// An interrupt takes longer than a turn of a loop that reads the clock, and less than a time slice.
func TestInterrupt(t *testing.T) {
	for range 5 {
		took, err := Interrupt()
		if errors.Is(err, ErrInterrupt) {
			t.Log(err) // the machine is busy, or has one CPU
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Log(took)
		if took <= 0 || took > 100*time.Millisecond {
			t.Errorf("an interrupt takes %v", took)
		}
	}
}
