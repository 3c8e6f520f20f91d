package report

import (
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

const (
	// leastHolderSamples is how many samples of CPU time a method needs to be named as the holder of a lock.
	leastHolderSamples = 10
	// leastHolderShare is the share of the CPU time below which a method holds no lock for long by computing.
	leastHolderShare = 0.02
)

// A wantedLock is the class of a lock in one process.
type wantedLock struct {
	pid   int64
	class string
}

// holder says in a sentence which method probably holds the lock for which threads wait longest, of CPU time and locks of one recording. Locks
// are recorded where a thread waits, which is no method that holds it then; but a method that acquires a lock mostly waits for it at times as
// well. Of those that do, the one with most CPU time holds it longest, unless it waits for something else meanwhile. "" if nothing can be said.
func holder(cpu, locks *pprof.Profile) (string, error) {
	e, err := readEvents(locks, profile.Locks)
	if err != nil {
		return "", err
	}
	var wanted eventGroups[wantedLock]
	sites := make(map[wantedLock]*eventGroups[string])
	for sample, t := range e.all() {
		lock := wantedLock{stacks.ProcessID(sample), stacks.Label(sample, stored.LabelClass)}
		if lock.class == "" || !stacks.Contended(sample) {
			continue
		}
		wanted.of(lock).add(t)
		if sites[lock] == nil {
			sites[lock] = new(eventGroups[string])
		}
		sites[lock].of(e.site(sample)).add(t)
	}
	if len(wanted.list) == 0 {
		return "", nil
	}
	top := wanted.sorted(lockDelay)[0]
	if top.events < leastEvents || top.values[lockDelay] == 0 {
		return "", nil
	}
	waiting := sites[top.key].sorted(lockDelay)[0]
	text := fmt.Sprintf("%s: waited for in %s (%s of its delay)", stored.Printable(top.key.class), stored.Printable(waiting.key),
		stored.Percent(waiting.values[lockDelay], top.values[lockDelay]))

	of, all, err := inclusive(cpu, top.key.pid, sites[top.key])
	if err != nil || all == 0 {
		return "", err
	}
	busiest := waiting.key
	for _, site := range sites[top.key].sorted(lockDelay) { // in an order that does not change
		if of[site.key] > of[busiest] {
			busiest = site.key
		}
	}
	share := stored.Percent(float64(of[busiest]), float64(all))
	switch {
	case float64(of[busiest]) < leastHolderShare*float64(all):
		if len(sites[top.key].list) == 1 {
			return text + "; no other method was seen to acquire it, so the holder is not known", nil
		}
		return text + "; the other methods seen to acquire it use no CPU time: the holder waits for something else, or never for this lock", nil
	case of[busiest] < leastHolderSamples:
		return "", nil
	case busiest == waiting.key:
		return text + fmt.Sprintf(", probably held there as well (%s of the CPU time)", share), nil
	}
	return text + fmt.Sprintf(", probably held by %s (%s of the CPU time)", stored.Printable(busiest), share), nil
}

// inclusive counts the samples of a process in methods and what they call, and all of that process.
func inclusive(cpu *pprof.Profile, pid int64, methods *eventGroups[string]) (of map[string]uint64, all uint64, err error) {
	s, err := stacks.Of(cpu, stored.TypeSamples)
	if err != nil {
		return nil, 0, err
	}
	of = make(map[string]uint64)
	var frames []stacks.Frame
	for sample, value := range s.All() {
		if stacks.ProcessID(sample) != pid {
			continue
		}
		all += value
		frames = s.AppendFrames(frames[:0], sample)
		counted := make(map[string]bool)
		for _, f := range frames {
			if methods.index[f.Name] != nil && !counted[f.Name] {
				counted[f.Name] = true
				of[f.Name] += value
			}
		}
	}
	return of, all, nil
}
