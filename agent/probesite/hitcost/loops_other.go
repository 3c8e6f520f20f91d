//go:build !amd64

package hitcost

import "github.com/vmprof-agent/vmprof-agent/agent/probesite"

// loopOf knows no kinds: those of package probesite are x86-64's.
func loopOf(probesite.Kind) (run func(n uint64), addr uint64, err error) {
	return nil, 0, probesite.ErrMachine
}
