package estimate

import "math"

// Time that calls take, in seconds. The values give the best overlap of estimates with exact call graphs of real programs on x86-64; half
// or double of each changes that little. With breakpoints, they matter only for code that is not connected to any observed code.
const (
	// edgeTime is what a call of hot code spends in the callee's prologue and epilogue.
	edgeTime = 0.2e-9
	// callTime is the least that a call of compiled code spends in the callee.
	callTime = 0.4e-9
	// interpretedTime is the time that a call of an interpreted method spends in it, and nativeTime the time that a call of a native method
	// spends in its wrapper; their logarithms vary widely.
	interpretedTime = 200e-9
	nativeTime      = 30e-9
)

// Rarely called code is not in the caches when it is called, and spends a hundred times as long in its prologue. Its samples there can be
// many calls of hot code or few of cold code while they are less than coldShare of all time.
const (
	coldShare    = 1e-3
	coldShift    = 0.65 // of the logarithm, downwards
	coldVariance = 2.
	edgeVariance = 0.3  // of the logarithm of edgeTime among hot codes
	edgeSeen     = 0.05 // added to the samples, so that no samples means few calls, not none

	// In a process that waits most of the time, code leaves the caches during each wait: prologues of all its code take ten to a hundred
	// times as long. That is so below busy CPUs, and the more so the fewer it uses.
	busy         = 0.5
	idleShift    = 4.
	idleVariance = 4.

	// A single sample in a code's prologue is mostly there by chance: much code is hardly ever called, and little is called all the time.
	// The logarithm is lower by chanceShift without samples, and by half of it with byChance samples.
	byChance    = 0.5
	chanceShift = 5.
)

// wholeTime is the time of calls that cannot be divided into prologue, body and epilogue.
var wholeTime = map[Tier]float64{Interpreted: interpretedTime, Native: nativeTime}

// timed returns what follows from the time in each code. If learn is set, the common error of all of them is an unknown, the scale: known
// rates of some codes then calibrate the others.
func timed(in *Input, n *network, learn bool) []equation {
	scale := VM
	var equations []equation
	if learn {
		scale = n.scale
		equations = append(equations, equation{to: scale, from: VM, variance: scaleVariance, freedom: hardly, evidence: Time})
	}
	perSample := in.Period / n.cpu
	idle := max(0, 1-n.cpu/in.Duration/busy)
	for c := range in.Codes {
		id := CodeID(c)
		if !in.has(id) || in.Codes[c].Loop {
			continue
		}
		t := n.spent[c]
		if took, ok := wholeTime[in.Codes[c].Tier]; ok {
			equations = append(equations, equation{
				to: id, from: VM, value: math.Log((t.samples + edgeSeen) * perSample / took), variance: 2,
				freedom: rarely, evidence: Time,
			})
			continue
		}
		value, variance := t.edgeRate(perSample)
		value, variance = value-idleShift*idle, variance+idleVariance*idle
		equations = append(equations, equation{
			to: id, from: scale, value: value, variance: variance, freedom: rarely, evidence: Time,
		}, equation{
			to: id, from: VM, value: math.Log((t.samples + 2*math.Sqrt(t.samples) + 2) * perSample / callTime),
			variance: 0.05, freedom: 10, bound: atMost, evidence: Time,
		})
	}
	return equations
}

// edgeRate is the logarithm of a rate from the time in prologue and epilogue, and its variance. perSample is the seconds that one sample
// stands for, per second.
func (t spent) edgeRate(perSample float64) (value, variance float64) {
	seen := t.atEdge + edgeSeen
	cold := 1 / (1 + t.atEdge*perSample/coldShare)
	chance := 1 / (1 + t.atEdge/byChance)
	return math.Log(seen*perSample/edgeTime) - coldShift*cold - chanceShift*chance, 1/seen + edgeVariance + coldVariance*cold
}
