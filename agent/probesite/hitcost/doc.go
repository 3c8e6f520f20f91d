// Package hitcost measures what a uprobe takes from a program each time that it is hit, on this machine and kernel.
//
//	cost, err := hitcost.Measure(probesite.Push, attach.Uprobe{}, hitcost.Options{})
//
// It runs loops of its own process with a probe in them and without. That tells which instructions the kernel
// emulates, and what they cost, before any guest is touched.
package hitcost
