package budget

import (
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	after := Times{7: time.Second}
	if used := (Times{}).Until(after); used != 0 {
		t.Errorf("a process that is new has used %v", used)
	}
	if used := after.Until(Times{7: time.Millisecond}); used != 0 {
		t.Errorf("time went back by %v", used)
	}
	if !(Times{}).Lacks(after) || after.Lacks(after) || after.Lacks(Times{}) {
		t.Error("a process is known that is not, or the other way round")
	}
	seen := Times{7: time.Second}
	seen.Add(Times{7: time.Minute, 8: time.Hour})
	if used := seen.Until(Times{7: 3 * time.Second, 8: time.Hour + time.Second}); used != 3*time.Second {
		t.Errorf("two processes have used %v, want 3s", used)
	}
}
