package guest

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Stats count what a Resolver did since it was made.
type Stats struct {
	Lookups      uint64            // frames that were looked up
	Failures     map[string]uint64 // panics by stage, every stage
	Reads        uint64            // successful reads of processes
	ReadFailures map[string]uint64 // by cause, every cause
	FirstNamed   time.Duration     // until the first frame of a VM had a name; 0 if none has
}

// Stats counts what was done so far.
func (rs *Resolver) Stats() Stats {
	s := Stats{Lookups: rs.lookups.Load(), Failures: rs.panics.all(), FirstNamed: time.Duration(rs.firstNamed.Load())}
	s.Reads, s.ReadFailures = rs.reads.all()
	return s
}

// CountRead counts a read of a process that a Follower made, by its error.
func (rs *Resolver) CountRead(err error) { rs.reads.count(err) }

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
	case errors.Is(err, vmruntime.ErrMalformed), errors.Is(err, elffile.ErrMalformed),
		errors.Is(err, elffile.ErrNotELF), errors.Is(err, elffile.ErrUnsupported):
		err = proc.ErrMalformed
	case errors.Is(err, elffile.ErrTooLarge):
		err = proc.ErrTooLarge
	}
	if c.failures == nil {
		c.failures = map[string]uint64{}
	}
	c.failures[proc.Cause(err)]++
}

// refusal counts a file that was refused, if that is what err says.
func (c *readCounts) refusal(err error) {
	if proc.Refused(err) {
		c.count(err)
	}
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
