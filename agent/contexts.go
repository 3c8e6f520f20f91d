package agent

import (
	"iter"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// newJoiner makes what joins samples with their contexts, given what it sets on the kernel side. What it calls back needs mu, which is
// held when it is called.
func (a *Agent) newJoiner(rates interface{ Put(key, value any) error }, setSteady func(uint64, bool) error) *fold.Joiner {
	return fold.NewJoiner(fold.JoinOptions{
		Contexts: a.opt.Contexts, Check: a.opt.CheckContexts, WalkEvery: a.opt.WalkEvery, LeaveUnknown: a.opt.LeaveUnknown,
		Log: a.log, Rates: rates, SetSteady: setSteady,
		Waiting: func(p *fold.Process) iter.Seq[map[fold.ThreadKey]*fold.Thread] {
			return func(yield func(map[fold.ThreadKey]*fold.Thread) bool) {
				for w := range a.windows {
					if !yield(w.processes[p]) {
						return
					}
				}
			}
		},
		Want: func(p *fold.Process, stack []target.RawFrame) {
			if p.Want(stack, p.ClassEpoch, &a.nameCount) {
				a.resolver.Submit(p.Process)
			}
		},
	})
}

// learnCalls learns from what a watch observed of code of p's VM.
func (a *Agent) learnCalls(p *fold.Process, hits []listener.Hit, classEpoch uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range hits {
		a.joiner.LearnCall(p, target.RawFrame{Frame: h.Callee, Kind: target.RawExact}, callSite(h.Caller, classEpoch), h.CalleeDepth, h.CallerDepth)
	}
}

// place gives the samples of a window that is closed their contexts. mu is not held, and not for long at a time: to place
// one link takes up to some milliseconds, and the ring must not run full meanwhile.
func (a *Agent) place(w *Window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, threads := range w.processes {
		a.resolver.Attempt(target.StageWindow, p.Process, func() {
			pl := a.joiner.NewPlacing(p)
			pl.Pause = func() {
				a.mu.Unlock()
				a.mu.Lock()
			}
			pl.Place(threads)
		})
	}
}
