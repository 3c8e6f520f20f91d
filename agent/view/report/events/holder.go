package events

import (
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

const (
	// leastHeld is the share of the delay below which nobody is named: too little of it was seen.
	leastHeld = 0.1
	// leastSecond is the share of the delay from which a second holder is named.
	leastSecond = 0.2
)

// A wantedLock is a lock as far as profiles distinguish it: the class, and where threads wait for
// it. Objects of one class are different locks where different methods wait for them, which is most
// often so.
type wantedLock struct {
	pid         int64
	class, site string
}

// holderOf is who was seen to have the lock during the wait of a sample: the method and the thread;
// "" if nobody was.
func holderOf(sample *pprof.Sample) string {
	method := stacks.Label(sample, stored.LabelHolder)
	if thread := stacks.Label(sample, stored.LabelHolderThread); method != "" && thread != "" {
		return method + ", " + thread
	}
	return method
}

// Holder says in a sentence where threads waited longest for locks, and who was seen to have them
// meanwhile, for which share of that time. It is "" if that was not seen.
func Holder(locks *pprof.Profile) (string, error) {
	e, err := readEvents(locks, profile.Locks)
	if err != nil {
		return "", err
	}
	var wanted eventGroups[wantedLock]
	holders := make(map[wantedLock]*eventGroups[string])
	classes := make(map[string]*tally)
	for sample, t := range e.all() {
		lock := wantedLock{stacks.ProcessID(sample), stacks.Label(sample, stored.LabelClass), e.site(sample)}
		if lock.class == "" || !stacks.Contended(sample) {
			continue
		}
		wanted.get(lock).add(t)
		if classes[lock.class] == nil {
			classes[lock.class] = new(tally)
		}
		classes[lock.class].add(t)
		if holders[lock] == nil {
			holders[lock] = new(eventGroups[string])
		}
		if who := holderOf(sample); who != "" {
			holders[lock].get(who).add(t)
		}
	}
	if len(wanted.list) == 0 {
		return "", nil
	}
	top := wanted.sorted(lockDelay)[0]
	seen := holders[top.key].sorted(lockDelay)
	delay := top.values[lockDelay]
	if len(seen) == 0 || seen[0].values[lockDelay] < leastHeld*delay {
		return "", nil
	}
	text := fmt.Sprintf("%s: waited for in %s (%s of its delay); held by %s (seen for %s of that)",
		stored.Printable(top.key.class), stored.Printable(top.key.site),
		stored.Percent(delay, classes[top.key.class].values[lockDelay]),
		stored.Printable(seen[0].key), stored.Percent(seen[0].values[lockDelay], delay))
	if len(seen) > 1 && seen[1].values[lockDelay] >= leastSecond*delay {
		text += fmt.Sprintf(", and by %s (%s)", stored.Printable(seen[1].key),
			stored.Percent(seen[1].values[lockDelay], delay))
	}
	return text, nil
}
