package estimate

import "math"

// A tally is how often the VM counted entries of methods, each with the codes that are counted there. Code of C2 does not
// count: what is entered there is not in it.
type tally []tallied

type tallied struct {
	codes    []CodeID // that count their entries
	rate     float64  // logarithm of entries per second of CPU time, of all codes together
	variance float64
	// most: rate is an upper bound for the codes. Other code that counts has the method inlined, and its entries are counted as well.
	most bool
}

// tallyVariance is that of the logarithm of what was counted: while the guest changes, the counters' time is not quite the
// window's. That of a few is larger: one that begins before the window makes calls in it.
const tallyVariance = 0.05

func newTally(in *Input, n *network) (t tally) {
	codes, inlined := make([][]CodeID, len(in.Methods)), make([]bool, len(in.Methods))
	for c := range in.Codes {
		code := &in.Codes[c]
		if !in.has(CodeID(c)) || code.Tier != Profiling && code.Tier != Interpreted {
			continue
		}
		if !code.Loop {
			codes[code.Method] = append(codes[code.Method], CodeID(c))
		}
		for i := 1; i < len(code.Copies); i++ {
			if m := code.Copies[i].Method; in.knowsMethod(m) {
				inlined[m] = true
			}
		}
	}
	for m := range in.Methods {
		p := &in.Methods[m]
		// A method that was not entered may be at work all the time, in a loop.
		if entries := p.Rate * in.Duration; len(codes[m]) > 0 && entries > 0 && finite(entries) {
			t = append(t, tallied{codes[m], near(math.Log(entries / n.cpu)), tallyVariance + 1/entries, inlined[m]})
		}
	}
	return t
}

// equations adds that the rates of codes are together what was counted, for rates near exp(x): how it divides among them
// is left to what else is known.
func (t tally) equations(x []float64, to []equation) []equation {
	for _, m := range t {
		sum := 0.
		for _, c := range m.codes {
			sum += math.Exp(near(x[c]))
		}
		bound := about
		if m.most {
			bound = atMost
		}
		for _, c := range m.codes {
			to = append(to, equation{
				to: c, from: VM, value: m.rate + near(x[c]) - math.Log(sum), variance: m.variance,
				freedom: hardly, bound: bound, evidence: Counter,
			})
		}
	}
	return to
}
