package estimate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A simulation is a process whose rates are known. It consists of codes that call each other, each
// with its time per call, and of what a timer, the VM and breakpoints observe.
type simulation struct {
	random *rand.Rand
	in     *Input
	rates  []float64 // by CodeID, calls a second
	calls  []simulatedCall
}

type simulatedCall struct {
	caller, callee CodeID
	site           Place
	perEntry, rate float64
}

// simulated describes a process and the errors of its profiles.
type simulated struct {
	seed    uint64
	codes   int
	seconds float64
	// polluted is the share of methods whose profiles are from another phase; shift is by how much,
	// as the standard deviation of a logarithm.
	polluted, shift float64
}

// newSimulation makes a process without loops: code i is called by some of the codes before it. The
// frequencies leave all rates between 100 and 50 million a second, as in real programs.
func newSimulation(s simulated) *simulation {
	sim := &simulation{random: rand.New(rand.NewPCG(s.seed, 1))}
	r := sim.random
	sim.in = &Input{
		Duration: s.seconds, CPU: s.seconds, Period: 1. / 400, HitCost: 10e-6,
		Methods: make([]Profile, s.codes), Codes: make([]Code, s.codes),
	}
	sim.rates = make([]float64, s.codes)
	for c := range s.codes {
		sim.in.Codes[c] = Code{Method: MethodID(c), Copies: []Copy{{Method: MethodID(c), Parent: -1, BCI: -1}}}
		if c < 3 {
			sim.rates[c] = 1000 * math.Exp(r.NormFloat64())
			sim.calls = append(sim.calls, simulatedCall{VM, CodeID(c), Place{NoMethod, -1}, 0, sim.rates[c]})
			continue
		}
		for range 1 + r.IntN(3) {
			caller := CodeID(r.IntN(c))
			perEntry := math.Exp(1.5 * r.NormFloat64())
			if rate := sim.rates[caller] * perEntry; rate < 100 || rate > 5e7 {
				perEntry = 1
			}
			site, rate := Place{MethodID(caller), int32(len(sim.calls))}, sim.rates[caller]*perEntry
			sim.calls = append(sim.calls, simulatedCall{caller, CodeID(c), site, perEntry, rate})
			sim.rates[c] += rate
		}
	}
	sim.profile(s)
	sim.sample(s.seconds)
	return sim
}

// profile fills in what the VM counts.
func (s *simulation) profile(what simulated) {
	for m := range s.in.Methods {
		s.in.Methods[m].Invocations = 5000
	}
	for _, c := range s.calls {
		if c.caller == VM {
			continue
		}
		p := &s.in.Methods[c.caller]
		perEntry := c.perEntry
		if float64(c.caller%100) < 100*what.polluted {
			perEntry *= math.Exp(what.shift * s.random.NormFloat64())
		}
		count := perEntry * p.Invocations
		p.Sites = append(p.Sites, Site{BCI: c.site.BCI, Count: count, Targets: []Target{{MethodID(c.callee), count}}})
	}
}

// sample fills in what the timer sees: samples in bodies that take any time, and at edges that take
// 0.45 ns, times or divided by two; a hundred times as long for rare calls.
func (s *simulation) sample(seconds float64) {
	r := s.random
	body, edge := make([]float64, len(s.rates)), make([]float64, len(s.rates))
	busy := 0.
	for c, rate := range s.rates {
		body[c] = 5e-9 * math.Exp(1.5*r.NormFloat64())
		edge[c] = 0.45e-9 * math.Exp(0.7*r.NormFloat64())
		edge[c] *= 1 + 100/(1+rate/1e4)
		busy += rate * (body[c] + edge[c])
	}
	for _, c := range s.calls {
		// The samples in these seconds on a processor that runs nothing else.
		samples := c.rate / busy * seconds / s.in.Period
		atEdge := s.poisson(samples * edge[c.callee])
		all := atEdge + s.poisson(samples*body[c.callee]*math.Exp(0.3*r.NormFloat64()))
		if all > 0 {
			site := []Place{c.site}
			if c.caller == VM {
				site = nil
			}
			s.in.Edges = append(s.in.Edges, Edge{c.caller, site, c.callee, all, atEdge})
		}
	}
	for i := range s.rates {
		s.rates[i] /= busy
	}
	for i := range s.calls {
		s.calls[i].rate /= busy
	}
}

// listen observes calls as planned.
func (s *simulation) listen(plan []Request) {
	for _, request := range plan {
		w := Window{Codes: request.Codes, Length: request.Duration}
		// The hits and entries that each call adds in the window, on average.
		total := 0.
		for _, c := range s.calls {
			if contains(request.Codes, c.callee) {
				total += c.rate * request.Duration
			}
		}
		part := 1.
		if total > float64(request.MaxHits) {
			part, w.Full = float64(request.MaxHits)/total, true
		}
		hits := 0.
		for _, c := range s.calls {
			if contains(request.Codes, c.callee) {
				n := s.poisson(c.rate * request.Duration * part)
				hits += n
				w.Hits = append(w.Hits, Hit{Caller: c.caller, Callee: c.callee, Count: n})
			}
		}
		w.Armed = request.Duration*part + hits*s.in.HitCost
		s.in.Windows = append(s.in.Windows, w)
	}
}

func contains(codes []CodeID, c CodeID) bool {
	for _, x := range codes {
		if x == c {
			return true
		}
	}
	return false
}

// poisson returns a Poisson-distributed number with that mean; for large means, a normally
// distributed one.
func (s *simulation) poisson(mean float64) float64 {
	if mean > 50 {
		return math.Max(0, math.Round(mean+math.Sqrt(mean)*s.random.NormFloat64()))
	}
	n, p, limit := 0., 1., math.Exp(-mean)
	for {
		if p *= s.random.Float64(); p <= limit {
			return n
		}
		n++
	}
}

type graph = cct.Graph[MethodID, struct{}]

// truth is the call graph between methods.
func (s *simulation) truth() *graph {
	g := &graph{}
	for _, c := range s.calls {
		g.Add(cct.Edge[MethodID, struct{}]{Caller: c.site.Method, Callee: MethodID(c.callee)}, c.rate)
	}
	return g
}

// timer is the call graph from samples alone: the top edges of all stacks.
func (s *simulation) timer() *graph {
	g := &graph{}
	for _, e := range s.in.Edges {
		caller := NoMethod
		if e.Caller != VM {
			caller = s.in.Codes[e.Caller].Method
		}
		g.Add(cct.Edge[MethodID, struct{}]{Caller: caller, Callee: s.in.Codes[e.Callee].Method}, e.Samples)
	}
	return g
}

func graphOf(r *Result) *graph {
	g := &graph{}
	for _, c := range r.Calls {
		g.Add(cct.Edge[MethodID, struct{}]{Caller: c.Caller.Method, Callee: c.Callee}, c.Rate)
	}
	return g
}

// run estimates after that many seconds of planned windows, with 1 % of a processor.
func (s *simulation) run(seconds int) *Result {
	for range seconds {
		r := Estimate(s.in, Options{})
		s.listen(Plan(s.in, r, Budget{Windows: 20, Hits: 1000, Codes: 3, MaxHits: 64, MaxDuration: 0.02}))
	}
	return Estimate(s.in, Options{})
}

func overlap(t *testing.T, a, b *graph) float64 {
	t.Helper()
	o := cct.Overlap(a, b)
	if math.IsNaN(o) {
		t.Fatal("overlap is not a number")
	}
	return o
}
