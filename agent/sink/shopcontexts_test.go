package sink_test

import (
	"io"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

type stack = []symbolize.Frame

// shopChained is a window of the shop in which contexts were chained: of 1000 samples 120 are ambiguous, 13 fitted, 4
// unplaced.
func shopChained() *profile.Profile {
	p := shop()
	worker := func(of profile.Certainty, stacks ...sampled) *profile.Thread {
		return &profile.Thread{TID: 1240, Name: "http-1", Context: of, Tree: contextTree(stacks...)}
	}
	p.Processes = p.Processes[1:]
	p.Processes[0].Threads = []*profile.Thread{
		worker(profile.Certain,
			sampled{400, stack{getNode, get, total, checkout, callStub, run, javaMain}},
			sampled{353, stack{total, checkout, callStub, run, javaMain}},
			sampled{110, repeat(fib, 3, checkout, callStub, run, javaMain)},
		),
		worker(profile.Ambiguous,
			sampled{90, stack{getNode, get, total, checkout, callStub, run, javaMain}},
			sampled{30, stack{getNode, get, slow, callStub, run, javaMain}},
		),
		worker(profile.Fitted, sampled{12, stack{total, checkout, callStub, run, javaMain}}, sampled{1, stack{futex, checkout, callStub, run, javaMain}}),
		worker(profile.Unplaced, sampled{4, stack{fib, total}}),
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

// entered is a tree in which the frames of each stack that are not those of the one before it were newly entered.
func entered(stacks ...sampled) *cct.Tree[symbolize.Symbol] {
	tree := new(cct.Tree[symbolize.Symbol])
	var before []symbolize.Symbol
	for _, s := range stacks {
		var symbols []symbolize.Symbol
		for _, f := range s.frames {
			symbols = append(symbols, symbolize.Intern(f))
		}
		shared := 0
		for shared < len(before) && shared < len(symbols) && before[len(before)-1-shared] == symbols[len(symbols)-1-shared] {
			shared++
		}
		tree.AddNew(symbols, len(symbols)-shared, s.weight)
		before = symbols
	}
	return tree
}

// shopPartial is a window of the shop in which stacks were walked partially: total runs long, fib is called often.
func shopPartial() *profile.Profile {
	p := shop()
	p.Processes = p.Processes[1:]
	outer := stack{checkout, callStub, run, javaMain}
	stacks := []sampled{
		{60, append(stack{total}, outer...)},
		{20, append(stack{getNode, get, total}, outer...)},
	}
	for range 10 {
		stacks = append(stacks, sampled{6, repeat(fib, 2, outer...)}, sampled{1, outer})
	}
	p.Processes[0].Threads = []*profile.Thread{{TID: 1240, Name: "http-1", Tree: entered(stacks...)}}
	p.Processes[0].Contexts = &profile.Contexts{Mode: profile.ContextPartial, Walked: 3, Linked: 147}
	p.Counts = profile.Counts{Attempted: 150, Delivered: 150, Folded: 150}
	return p
}

// shopWindows are consecutive windows of 10 s each.
func shopWindows(windows ...*profile.Profile) (*sink.Windows, error) {
	w := sink.NewWindows(sink.Time)
	for i, p := range windows {
		p.Start, p.Duration = time.Unix(1_700_000_000+10*int64(i), 0), 10*time.Second
		if err := w.Add(p); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// viewFooter is the footer as a view.
func viewFooter(w io.Writer, p *pprof.Profile, opts *sink.ViewOptions) error {
	width := 79
	if opts != nil {
		width = opts.Width
	}
	return sink.Footer(w, p, width)
}
