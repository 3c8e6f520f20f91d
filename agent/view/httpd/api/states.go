package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// A State is one in which state threads were: so many of them, on average.
type State struct {
	Name    string  `json:"name"`
	Threads float64 `json:"threads"`
}

// waiting is the state of threads that wait for anything but a CPU.
const waiting = "waiting"

// shownStates are the states that services have, in this order.
var shownStates = [...]string{cause.Running, cause.Runnable, cause.Throttled, cause.Stopped, waiting}

// stateOf is the state of a thread that waits for a cause; empty if it is not shown, as it has
// nothing to do.
func stateOf(of string) string {
	switch {
	case of == cause.Idle:
		return ""
	case slices.Contains(shownStates[:], of):
		return of
	}
	return waiting
}

// addStates adds what threads did to the services of an answer, from wall time if that is recorded,
// or else off-CPU time.
func (a *API) addStates(r *http.Request, s selection, out *Services) error {
	recorded := a.kinds()
	at := slices.IndexFunc(recorded, func(k *Kind) bool { return k.Content == sink.OfEvents(profile.Wall) })
	if at < 0 {
		at = slices.IndexFunc(recorded, func(k *Kind) bool { return k.Content == sink.OfEvents(profile.OffCPU) })
	}
	if at < 0 {
		return nil
	}
	s.kind = recorded[at]
	f, err := a.find(r, s, "", s.from, s.to)
	if err != nil {
		return err
	}
	if f.Duration <= 0 {
		return nil
	}
	whole := map[string]float64{}
	byService := map[string]map[string]float64{}
	for service, causes := range f.Labels() {
		byService[service] = map[string]float64{}
		for of, value := range causes {
			if state := stateOf(of); state != "" {
				byService[service][state] += value
				whole[state] += value
			}
		}
	}
	out.States = statesOf(whole, f.Duration)
	for i := range out.Services {
		out.Services[i].States = statesOf(byService[out.Services[i].Service], f.Duration)
	}
	return nil
}

// statesOf lists the states that have a time, in ns.
func statesOf(sums map[string]float64, in time.Duration) (list []State) {
	for _, state := range shownStates {
		if sums[state] > 0 {
			list = append(list, State{state, sums[state] / float64(in)})
		}
	}
	return list
}
