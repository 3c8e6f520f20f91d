package target

import (
	"errors"
	"maps"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// readCounts count reads of targets, failed ones by cause. The zero value is ready for use.
type readCounts struct {
	mu       sync.Mutex
	reads    uint64
	failures map[string]uint64
}

// count counts a read. That there is nothing at an address any more is a successful read.
func (c *readCounts) count(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, vmruntime.ErrStale), errors.Is(err, vmruntime.ErrUnknown):
		c.reads++
		return
	case errors.Is(err, vmruntime.ErrMalformed):
		err = proc.ErrMalformed
	}
	if c.failures == nil {
		c.failures = map[string]uint64{}
	}
	c.failures[proc.Cause(err)]++
}

// all returns the number of successful reads and of failures, the latter with every cause.
func (c *readCounts) all() (reads uint64, failures map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failures = map[string]uint64{}
	for _, cause := range proc.Causes() {
		failures[cause] = 0
	}
	maps.Copy(failures, c.failures)
	return c.reads, failures
}
