// Package estimate finds out how often calls are made in a guest that cannot be asked: from samples of a timer, from
// what the VM itself counted, and from a few moments in which breakpoints listened.
//
//	result := estimate.Estimate(in, estimate.Options{Logical: true})
//	for _, request := range estimate.Plan(in, result, budget) { … } // what to listen to next
//
// Samples show where time goes. How it divides among the callers of a method is near the truth; how often a method is
// called does not follow from it, as a call may take any time. (Whaley's partial stacks and Arnold & Grove's counters,
// CGO 2005, start from the same fact.) Five other facts help:
//
//   - The time in prologues and epilogues is about the same for all calls of hot code. It is wrong by a factor of two
//     or three for single methods, and much too long for rarely called ones, whose code is not in the caches.
//   - The VM counts each call of a method while it interprets it, or runs code of its profiling tiers. How often a site
//     is executed per invocation is usually exact for a method that always does the same; it is of the guest's youth
//     for others. The products along an inline chain say how often a physical call is made per entry of the caller's
//     code, and how often the calls that were compiled away are.
//   - The calls that compiled code makes can be read from it, also those that no sample shows; the others that profiles
//     count were compiled away.
//   - A breakpoint on a method that is called rarely counts it for some milliseconds, and its silence bounds the rate.
//   - Breakpoints on a caller and its callee at once show how often one calls the other, however hot they are.
//
// All of them are statements about the logarithms of rates, each with a variance: "this is about that", or "this is
// so much more than that". The estimate is what is most likely under all of them, with errors from Student's t
// distribution, as each kind is sometimes very wrong: see equation. How the entries of a code divide among its callers
// depends on the callers' rates in turn, so that both are computed in alternation: see network.divide.
//
// The package is arithmetic: it reads nothing, keeps nothing, and gives the same result for the same input.
package estimate
