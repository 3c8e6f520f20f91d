// Package hitcost measures what uprobes take from a program on this machine and kernel: each hit,
// and each interrupt of its CPU when a probe is attached or detached.
//
//	cost, err := hitcost.Measure(probesite.Push, nil, hitcost.Options{})
//	interrupt, err := hitcost.Interrupt()
//
// It runs loops of its own process with and without a probe in them. That shows which instructions
// the kernel emulates, and what they cost, before any process is touched.
package hitcost
