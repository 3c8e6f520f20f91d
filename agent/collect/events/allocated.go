package events

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// exactDeadline bounds the wait for the names of counted classes.
const exactDeadline = 5 * time.Second

// A classCounts is the number of objects of each class allocated since the agent began.
type classCounts map[bpf.CountedClass]bpf.ClassCount

// classCounts reads the counts of all VMs.
func (e *Source) classCounts() (classCounts, error) {
	counts := classCounts{}
	var key bpf.CountedClass
	var count bpf.ClassCount
	for all := e.Programs.Allocated.Iterate(); ; {
		if !all.Next(&key, &count) {
			// If a map changes while it is read, reading may restart from its beginning; entries
			// read before are still correct.
			if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
				return nil, fmt.Errorf("read counts of allocations: %w", err)
			}
			return counts, nil
		}
		counts[key] = count
	}
}

// since returns the counts of one VM after before.
func (c classCounts) since(before classCounts, serial uint32) map[uint64]bpf.ClassCount {
	counts := map[uint64]bpf.ClassCount{}
	for key, n := range c {
		was := before[key]
		if key.Serial == serial && n.Objects > was.Objects {
			counts[key.Klass] = bpf.ClassCount{Objects: n.Objects - was.Objects, Bytes: n.Bytes - was.Bytes}
		}
	}
	return counts
}

// countObjects adds the counted objects of a window's processes to the window.
func (e *Source) countObjects(ctx context.Context, w *source.Closed, before, after classCounts, out *profile.Profile) {
	for _, p := range w.Processes {
		counts := after.since(before, p.Attachment.Load())
		if len(counts) == 0 {
			if e.cannotCount(ctx, p) {
				out.Comments = append(out.Comments,
					fmt.Sprintf("objects of process %d are not counted: the JVM does not report its allocations: "+
						"start it with -XX:+%s", p.PID, objectFlag))
			}
			continue
		}
		names, err := e.classNames(ctx, p, counts)
		if err == nil {
			err = e.services.Owner.Do(func(*fold.State) { addExact(w.EventSet(p), counts, names) })
		}
		if err != nil {
			out.Comments = append(out.Comments, fmt.Sprintf("objects of process %d are not counted: %v", p.PID, err))
		}
	}
}

// objectFlag is the command line flag that makes a JVM report its allocations.
const objectFlag = "DTraceAllocProbes"

// flags are those of a VM's command line.
type flags interface {
	Flag(name string) (bool, error)
}

// cannotCount says that a process is a JVM that does not report its allocations.
func (e *Source) cannotCount(ctx context.Context, p *fold.Process) bool {
	if !e.Options.ExactAllocations || !p.HasCalls() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, exactDeadline)
	defer cancel()
	off := make(chan bool, 1)
	err := e.services.Resolver.WithVM(ctx, p.Process, func(g *guest.VM) error {
		vm, err := guest.As[flags](g)
		if err != nil {
			return err
		}
		on, err := vm.Flag(objectFlag)
		off <- !on && err == nil
		return err
	})
	return err == nil && <-off
}

// classNames names the classes of p's counted objects.
func (e *Source) classNames(
	ctx context.Context, p *fold.Process, counts map[uint64]bpf.ClassCount,
) (map[uint64]string, error) {
	ctx, cancel := context.WithTimeout(ctx, exactDeadline)
	defer cancel()
	return e.services.Resolver.ClassNames(ctx, p.Process, maps.Keys(counts))
}

// addExact adds the counted objects of a process, in rows without a context. The caller holds the
// State of the events: the release of another window reads their frames.
func addExact(s *fold.EventSet, counts map[uint64]bpf.ClassCount, names map[uint64]string) {
	r := s.ByKind(profile.Allocations)
	for klass, n := range counts {
		key := fold.EventKey{Context: cct.Root, EventLabels: profile.EventLabels{Class: names[klass],
			What: profile.ExactAllocations}}
		if r.Rows[key] == nil {
			r.Rows[key] = &fold.EventSums{}
		}
		r.Rows[key].Add(&fold.EventSums{Events: n.Objects, Values: [profile.MaxEventValues]float64{float64(n.Objects),
			float64(n.Bytes)}})
	}
}
