package main

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A paced guest knows how long its iterations take.
type paced struct {
	callGuest
	name      string
	iteration time.Duration // of CPU, without the agent; about
	rests     []float64     // CPU ns of an iteration in each turn without the agent
	recorded  []recorded    // and in each with it
}

// recorded is what came of a guest's turn with the agent.
type recorded struct {
	iteration float64 // CPU ns
	cpu       time.Duration
	found     *callGraph
	truth     *callGraph
	calls     float64 // samples of this guest in the graph: its part of all guests' by CPU time, as ticks are
	stats     *profiler.CallStats
}

// turn has the guest work for that much CPU time, as far as whole iterations allow.
func (g *paced) turn(d time.Duration) (total time.Duration, iteration float64, err error) {
	n := max(1, int(d/g.iteration))
	if total, err = g.work(n); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", g.name, err)
	}
	return total, float64(total) / float64(n), nil
}

func (g *paced) latest() *recorded { return &g.recorded[len(g.recorded)-1] }

// overhead is how much more CPU time an iteration took in the k-th turn with the agent than in the turns without it
// before and after, as a share of theirs.
func (g *paced) overhead(k int) float64 {
	return 2*g.recorded[k].iteration/(g.rests[k]+g.rests[k+1]) - 1
}

// control is what overhead says of the k-th turn without the agent, from those before and after: how much of it is noise.
func (g *paced) control(k int) float64 { return 2*g.rests[k]/(g.rests[k-1]+g.rests[k+1]) - 1 }

// overlap and ideal are those of the k-th turn with the agent.
func (g *paced) overlap(k int) float64 { return cct.Overlap(g.recorded[k].found, g.recorded[k].truth) }

func (g *paced) ideal(k int) float64 { return idealOverlap(g.recorded[k].truth, g.recorded[k].calls) }
