package sinktest

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

type Stack = []symbol.Frame

// ShopChained is a window of the shop in which contexts were chained: of 1000 samples 120 are
// ambiguous, 13 fitted, 4 unplaced.
func ShopChained() *profile.Profile {
	p := Shop()
	worker := func(of profile.Certainty, stacks ...Sampled) *profile.Thread {
		return &profile.Thread{TID: 1240, Name: "http-1", Context: of, Tree: ContextTree(stacks...)}
	}
	p.Processes = p.Processes[1:]
	p.Processes[0].Threads = []*profile.Thread{
		worker(profile.Certain,
			Sampled{400, Stack{GetNode, Get, Total, Checkout, CallStub, Run, JavaMain}},
			Sampled{353, Stack{Total, Checkout, CallStub, Run, JavaMain}},
			Sampled{110, Repeat(Fib, 3, Checkout, CallStub, Run, JavaMain)},
		),
		worker(profile.Ambiguous,
			Sampled{90, Stack{GetNode, Get, Total, Checkout, CallStub, Run, JavaMain}},
			Sampled{30, Stack{GetNode, Get, Slow, CallStub, Run, JavaMain}},
		),
		worker(profile.Fitted, Sampled{12, Stack{Total, Checkout, CallStub, Run, JavaMain}},
			Sampled{1, Stack{Futex, Checkout, CallStub, Run, JavaMain}}),
		worker(profile.Unplaced, Sampled{4, Stack{Fib, Total}}),
	}
	p.Processes[0].Contexts = &profile.Contexts{
		Mode: profile.ContextChain, Walked: 50, Linked: 950, Ambiguous: 120, Fitted: 13, Unplaced: 4,
		Nodes: 346, Shared: 10, Methods: 122,
		ByDepth: [3]uint64{995, 992, 870}, BySite: [3]uint64{998, 995, 900},
		Check: &profile.ContextCheck{Samples: 400, Right: [3]uint64{396, 388, 350}},
	}
	p.Counts = profile.Counts{Attempted: 1000, Delivered: 1000, Folded: 1000}
	return p
}

// Entered is a tree in which the frames of each stack that are not those of the one before it were
// newly entered.
func Entered(stacks ...Sampled) *cct.Tree[symbol.Symbol] {
	tree := new(cct.Tree[symbol.Symbol])
	var before []symbol.Symbol
	for _, s := range stacks {
		var symbols []symbol.Symbol
		for _, f := range s.Frames {
			symbols = append(symbols, symbol.Intern(f))
		}
		shared := 0
		for shared < len(before) && shared < len(symbols) &&
			before[len(before)-1-shared] == symbols[len(symbols)-1-shared] {
			shared++
		}
		tree.AddNew(symbols, len(symbols)-shared, s.Weight)
		before = symbols
	}
	return tree
}

// ShopPartial is a window of the shop in which stacks were walked partially: total runs long, fib
// is called often.
func ShopPartial() *profile.Profile {
	p := Shop()
	p.Processes = p.Processes[1:]
	outer := Stack{Checkout, CallStub, Run, JavaMain}
	stacks := []Sampled{
		{Weight: 60, Frames: append(Stack{Total}, outer...)},
		{Weight: 20, Frames: append(Stack{GetNode, Get, Total}, outer...)},
	}
	for range 10 {
		stacks = append(stacks, Sampled{6, Repeat(Fib, 2, outer...)}, Sampled{1, outer})
	}
	p.Processes[0].Threads = []*profile.Thread{{TID: 1240, Name: "http-1", Tree: Entered(stacks...)}}
	p.Processes[0].Contexts = &profile.Contexts{Mode: profile.ContextPartial, Walked: 3, Linked: 147}
	p.Counts = profile.Counts{Attempted: 150, Delivered: 150, Folded: 150}
	return p
}

// ShopWindows are consecutive windows of 10 s each.
func ShopWindows(windows ...*profile.Profile) (*sink.Windows, error) {
	w := sink.NewWindows(sink.Time)
	for i, p := range windows {
		p.Start, p.Duration = time.Unix(1_700_000_000+10*int64(i), 0), 10*time.Second
		if err := w.Add(p); err != nil {
			return nil, err
		}
	}
	return w, nil
}
