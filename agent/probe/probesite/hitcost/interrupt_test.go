//go:build linux

package hitcost

import (
	"errors"
	"testing"
)

// A thread that is interrupted loses more than one that is not.
func TestInterrupt(t *testing.T) {
	for range 10 {
		with, err := Interrupt()
		without, controlErr := lostTo(func() error { return nil })
		if err := errors.Join(err, controlErr); err != nil {
			if !errors.Is(err, ErrInterrupt) {
				t.Fatal(err)
			}
			continue
		}
		t.Logf("%v, %v without an interrupt", with, without)
		if with <= without {
			t.Errorf("an interrupt takes %v, nothing %v", with, without)
		}
		return
	}
	t.Skip(ErrInterrupt) // one CPU, or all are busy
}
