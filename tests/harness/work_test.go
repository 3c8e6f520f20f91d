package harness

import (
	"errors"
	"testing"
	"time"
)

func TestWork(t *testing.T) {
	began := make(chan bool, 1)
	w := StartWork(t.Context(), func(time.Duration) (int, error) {
		select {
		case began <- true:
		default:
		}
		time.Sleep(time.Millisecond) // It is the work.
		return 2, nil
	})
	<-began
	did, err := w.Finish()
	if err != nil || did.Iterations < 2 || did.Iteration() <= 0 {
		t.Errorf("%+v, %v", did, err)
	}
	broken, failed := errors.New("broken"), make(chan bool)
	w = StartWork(t.Context(), func(time.Duration) (int, error) { close(failed); return 0, broken })
	<-failed
	if _, err := w.Finish(); !errors.Is(err, broken) {
		t.Errorf("a guest that fails: %v", err)
	}
}
