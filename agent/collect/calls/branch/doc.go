// Package branch samples calls that the CPU itself records, in code of any kind, without any
// support in the process.
//
// Branch records (Intel's LBR, AMD's LbrExtV2 from Zen 4 on, Arm's BRBE) hold the last 8 to 32
// calls and indirect jumps of a thread in order. So at a tick of user time, the recorded calls are
// a burst of stride 1. A call of one of HotSpot's vtable or itable stubs goes where the stub's jump
// goes, which is the next record. Other jumps (switches, an interpreter's dispatch) leave less room
// for calls. No machine with such records was available: the rules are tested on synthetic records
// only. Without branch records, Intel CPUs can still raise an event at every Nth retired call. Such
// samples are proportional to the number of calls, whatever time these take.
//
//	e, err := branch.Try(objects, os.DirFS("/")) // err says what the machine lacks
//	err = e.Tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 1, Samples: 32}})
//
// Virtual machines usually have neither.
package branch
