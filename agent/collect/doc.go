// Package collect is the wing of what fills an open window: from records to sums of frames that
// have no names yet.
//
//   - source says what a source of samples, events or calls is, and which services it gets
//   - intern completes samples that refer to earlier ones, and fold joins samples with their
//     processes and adds them to open windows
//   - cputime and wall scale samples to times that the scheduler knows; lanes keep what each thread
//     did over time
//   - events, monitors and slow are sources of allocations, locks and waits, of uncontended locks,
//     and of slow invocations
//   - engines is the source of calls, with an engine in each room of calls; timing times
//     invocations
//   - budget bounds the CPU time that all of this takes from programs
//
// Its rooms import the wings host, probe, guest and model. Whoever shows a closed window does not
// import them.
package collect
