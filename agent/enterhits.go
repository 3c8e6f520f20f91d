package agent

import (
	"context"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/monitors"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/agent/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// maxEnterClasses bounds the names of classes that are kept of a guest.
const maxEnterClasses = 1 << 12

// Take implements monitors.Source. It names classes, and folds contexts as events whose values are set when a window closes.
func (m *monitorEnters) Take(ctx context.Context, h *monitors.Observed) error {
	own := m.guests[h.Guest]
	if own == nil {
		return proc.ErrGone
	}
	if err := m.nameClasses(ctx, own, h); err != nil {
		return err
	}
	var o bpf.Observation
	for _, walk := range h.Result.Walks {
		if walk.Hit >= len(h.Result.Hits) || bpf.DecodeObservation(walk.Record, &o) != nil {
			continue
		}
		hit := h.Result.Hits[walk.Hit]
		place := h.Window.Sites[hit.Site].Place
		if len(o.User) == 0 || o.User[0] != enterFrame(place, own.codeLow) {
			return watch.ErrChanged // other code stood there
		}
		m.fold(own.process, &o, h.Classes[hit.Klass])
	}
	return nil
}

// fold puts the context of a hit into the windows that are open.
func (m *monitorEnters) fold(p *fold.Process, o *bpf.Observation, class string) {
	e := fold.Event{
		Kind: profile.Locks, TID: o.Tid, Thread: fold.ThreadName(o.Comm), Stack: target.AppendStack(nil, &o.Sample, p.Attachment.Load()),
		Labels: profile.EventLabels{Class: class, What: enterWhat}, Sums: fold.EventSums{Events: 1},
	}
	m.agent.mu.Lock()
	defer m.agent.mu.Unlock()
	m.agent.foldEvent(p, o, &e)
}

// nameClasses names the classes of all hits. Addresses are good until classes are unloaded.
func (m *monitorEnters) nameClasses(ctx context.Context, own *enterGuest, h *monitors.Observed) error {
	h.Classes = map[uint64]string{}
	epoch := m.agent.resolver.ClassEpochOf(own.process.Process)
	if epoch != own.epoch || len(own.classes) > maxEnterClasses {
		clear(own.classes)
		own.epoch = epoch
	}
	var unknown []uint64
	for _, hit := range h.Result.Hits {
		name, known := own.classes[hit.Klass]
		h.Classes[hit.Klass] = name
		if !known && hit.Klass != 0 && !slices.Contains(unknown, hit.Klass) {
			unknown = append(unknown, hit.Klass)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	names, err := m.agent.resolver.ClassNames(ctx, own.process.Process, slices.Values(unknown))
	if err != nil {
		return err
	}
	for klass, name := range names {
		h.Classes[klass], own.classes[klass] = name, name
	}
	return nil
}
