package guests

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// The agent's writes to its page are in the guest's memory, until the agent ends.
func TestVMSlotsInMemory(t *testing.T) {
	_, p, r := connected(t, theVM(t), "adversary")
	slots := func() []VMSlot {
		s, err := r.Slots()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if sampled, err := r.Sampled(); sampled || err != nil {
		t.Errorf("sampled before it was armed: %v, %v", sampled, err)
	}
	p.arm(2, slot{Armed: 1, Skip: 2, Left: 3, Stride: 4})
	if got := slots(); len(got) != pageSlots || got[2] != (VMSlot{1, 2, 3, 4}) || got[1] != (VMSlot{}) {
		t.Errorf("slots %v", got)
	}
	if sampled, err := r.Sampled(); !sampled || err != nil {
		t.Errorf("not sampled although it is armed, %v", err)
	}
	p.hangUp()
	wait.For(t, patience, "the slot is no longer armed", func() bool { return slots()[2] == (VMSlot{}) })
}
