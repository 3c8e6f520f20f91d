// Package branch samples calls that the CPU itself writes down, of code of any kind, without anything in the guest.
//
// Branch records (Intel's LBR, AMD's LbrExtV2 from Zen 4 on, Arm's BRBE) hold the last 8 to 32 calls and indirect jumps of a
// thread, one after the other: at a tick of user time the calls are a burst of stride 1. A call of one of HotSpot's vtable and
// itable stubs leads where the stub's jump leads, which is the next record; other jumps (switches, an interpreter's dispatch)
// leave less room for calls. No machine with such records was at hand: the rules are tested on records that tests make up. Where there are none, Intel CPUs can still raise
// an event at every Nth call that they retire: such samples are as frequent as calls are, whatever time they take.
//
//	e, err := branch.Try(objects, os.DirFS("/")) // err says what the machine lacks
//	err = e.Tune(calls.Rate{Hz: 100, Burst: calls.Burst{Stride: 1, Samples: 32}})
//
// Virtual machines have neither, as a rule.
package branch
