//go:build !amd64

package hitcost

import "github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"

// loopOf knows no kinds: package probesite only has those of x86-64.
func loopOf(probesite.Kind) (run func(n uint64), addr uint64, err error) {
	return nil, 0, probesite.ErrMachine
}
