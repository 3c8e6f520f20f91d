package estimate

import "math"

// Time that calls take, in seconds. With breakpoints or counts, they matter only for code that is
// not connected to any observed code.
const (
	// edgeTime is what a call of hot code spends in the callee's prologue and epilogue, on average
	// over a program's calls: 0.3 to 0.9 ns in programs with known calls on x86-64, whether they
	// use all of a CPU or wait most of the time.
	edgeTime = 0.45e-9
	// callTime is the least that a call of compiled code spends in the callee, and bodyTime what it
	// spends there typically.
	callTime = 0.4e-9
	bodyTime = 30e-9
	// interpretedTime is the time that a call of an interpreted method spends in it, and nativeTime
	// the time that a call of a native method spends in its wrapper; their logarithms vary widely.
	interpretedTime = 200e-9
	nativeTime      = 30e-9
)

// Variances of logarithms.
const (
	edgeVariance = 0.5 // variance of the edge time, among the codes of a program
	bodyVariance = 4.  // variance of the body time, among the codes of a program
	// programVariance is that of the body time among programs: an error that all codes of a program
	// share.
	programVariance = 2.5
)

const (
	// Rarely called code is not in the caches when it is called. Its prologue takes up to coldTimes
	// as long, half of that if it is called warm times per second of CPU time. That time does not
	// depend on how much of the wall time a process waits: its code leaves the caches when other
	// processes run, and at most once per wait.
	coldTimes = 100
	warm      = 1e3
	// byChance is a number of samples in the prologue of code that is hardly ever called.
	byChance = 0.02
	// bodySeen is added to the samples of code, so that no samples means few calls, not none.
	bodySeen = 0.05
)

// wholeTime is the time of calls that cannot be divided into prologue, body and epilogue.
var wholeTime = map[Tier]float64{Interpreted: interpretedTime, Native: nativeTime}

// timed appends what follows from the time in each code, for rates near exp(x). If learn is set,
// the common error of all of them is an unknown, the scale: known rates of some codes then
// calibrate the others.
func timed(in *Input, n *network, x []float64, learn bool, to []equation) []equation {
	scale := VM
	if learn {
		scale = n.scale
		to = append(to, equation{to: scale, from: VM, variance: scaleVariance, freedom: hardly, evidence: Time})
	}
	to = append(to, equation{to: n.body, from: VM, variance: programVariance, freedom: rarely, evidence: Time})
	to = append(to, equation{to: n.worker, from: VM, variance: workerVariance, freedom: rarely, evidence: Time})
	perSample := in.Period / n.cpu
	for c := range in.Codes {
		id := CodeID(c)
		if !in.has(id) {
			continue
		}
		t := n.spent[c]
		if n.work[c] > 0 {
			value := x[id] - x[n.worker]
			step, information := t.worked(value, perSample, n.work[c], workVariance)
			to = append(to, equation{
				to: id, from: n.worker, value: near(value + step), variance: 1 / information, freedom: rarely,
				evidence: Time,
			})
		}
		if in.Codes[c].Loop {
			continue // it has no calls of its own
		}
		if took, ok := wholeTime[in.Codes[c].Tier]; ok {
			to = append(to, equation{
				to: id, from: VM, value: math.Log((t.samples + bodySeen) * perSample / took), variance: 2,
				freedom: rarely, evidence: Time,
			})
			continue
		}
		value := x[id]
		if learn {
			value -= x[scale]
		}
		step, information := t.edge(value, perSample)
		to = append(to, equation{
			to: id, from: scale, value: near(value + step), variance: 1 / information, freedom: hardly, evidence: Time,
		}, equation{
			to: id, from: VM, value: math.Log((t.samples + 2*math.Sqrt(t.samples) + 2) * perSample / callTime),
			variance: 0.05, freedom: 10, bound: atMost, evidence: Time,
		})
		// Most code without samples is hardly ever called.
		if t.samples > 0 && in.Codes[c].Tier == Compiled && n.work[c] == 0 {
			to = append(to, equation{
				to: id, from: n.body, value: t.guess(perSample, bodyTime), variance: bodyVariance, freedom: often,
				evidence: Time,
			})
		}
	}
	return to
}

// guess is the logarithm of a rate by the time in the code, if a call takes that many seconds.
// perSample is the seconds that one sample stands for, per second.
func (t spent) guess(perSample, seconds float64) float64 {
	return math.Log((t.samples + bodySeen) * perSample / seconds)
}

// edge returns by how much the samples in prologue and epilogue move a rate near exp(x), and what
// they weigh: a step of Fisher scoring for a negative binomial number of samples (McCullagh and
// Nelder, Generalized Linear Models, 1989, section 2.5). So one sample in each of ten codes says as
// much as ten samples in one, and no sample says that there are not many calls.
func (t spent) edge(x, perSample float64) (step, information float64) {
	rate := math.Exp(near(x))
	cold := 1 + coldTimes/(1+rate/warm)
	expected := rate * edgeTime * cold / perSample
	// Where a call of rarer code takes longer, the time depends little on the rate.
	slope := 1 - (cold-1)/cold*rate/warm/(1+rate/warm)
	return scoring(t.atEdge, expected, slope, edgeVariance)
}

// scoring is a step for a number of samples of which so many are expected, with that variance of
// their logarithm. slope is that of the expectation's logarithm over the rate's.
func scoring(samples, expected, slope, variance float64) (step, information float64) {
	slope *= expected / (expected + byChance)
	expected += byChance
	most := max(expected, samples) // bounds the step, and the weight of far too many samples
	return (samples - expected) / most, slope * most / (1 + variance*most)
}

// worked is as edge, for all samples of a code whose work takes that many seconds per entry, with
// that variance of its logarithm.
func (t spent) worked(x, perSample, work, variance float64) (step, information float64) {
	rate := math.Exp(near(x))
	cold := workCold / (1 + rate/warm)
	expected := rate * (work + cold) / perSample
	share := cold / (work + cold)
	slope := 1 - share*rate/warm/(1+rate/warm)
	return scoring(t.samples, expected, slope, variance+coldVariance*share*share)
}

// worked is the information of all samples about the error that all rates from work share, for
// rates exp(x): their number, without those that are not due to work.
func (n *network) worked(x []float64, in *Input) (information float64) {
	for c, t := range n.spent {
		if n.work[c] > 0 {
			_, of := t.worked(x[c]-x[n.worker], in.Period/n.cpu, n.work[c], 0)
			information += of
		}
	}
	return information
}

// edges is the information of the samples in all prologues and epilogues about the error that all
// rates from time share, for rates exp(x).
func (n *network) edges(x []float64, in *Input) (information float64) {
	for c, t := range n.spent {
		if code := &in.Codes[c]; code.Tier == Compiled && !code.Loop {
			_, of := t.edge(x[c], in.Period/n.cpu)
			information += of
		}
	}
	return information
}
