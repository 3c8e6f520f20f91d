//go:build linux

package bpf

import (
	"cmp"
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// A probing is what is loaded for tests of probes: the maps that the agent's objects share, and the
// programs.
type probing struct {
	o      *Objects
	p      *ProbeObjects
	events *FaultObjects // once a test wanted them
}

// Those for single links, and those for uprobe.multi ones.
var probings, multiProbings shelf[Options, *probing]

func loadProbing(opts Options) (*probing, error) { return newProbing(opts, false) }

func loadMultiProbing(opts Options) (*probing, error) { return newProbing(opts, true) }

func newProbing(opts Options, multi bool) (*probing, error) {
	o, err := loadMaps(opts)
	if err != nil {
		return nil, err
	}
	o.opts.SingleProbes = !multi
	p, err := o.LoadProbes()
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &probing{o: o, p: p}, nil
}

// loadMaps is Load without the agent's own programs, which an emulated processor takes half a
// minute to verify: it has the maps that other objects share.
func loadMaps(opts Options) (*Objects, error) {
	spec, err := LoadProfile()
	if err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = cmp.Or(opts.RingBytes, DefaultRingBytes)
	o := &Objects{opts: Options{FilterByPID: true}}
	for name, to := range map[string]**ebpf.Map{
		"events": &o.Events, "nmi_events": &o.NmiEvents, "counters": &o.Counters, "tick_counts": &o.TickCounts,
		"processes": &o.Processes, "epochs": &o.Epochs, "pids": &o.Pids, "ended_pids": &o.EndedPids,
		"seen_methods": &o.SeenMethods, "known_threads": &o.KnownThreads,
	} {
		if *to, err = ebpf.NewMap(spec.Maps[name]); err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	return o, nil
}

// choose has this process probed.
func (l *probing) choose(t *testing.T) {
	t.Helper()
	if err := l.o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
}

// faults are the programs behind perf events.
func (l *probing) faults(t *testing.T) *FaultObjects {
	t.Helper()
	if l.events == nil {
		f, err := l.o.LoadFaults(l.p)
		needKernel(t, err)
		l.events = f
	}
	return l.events
}

func (l *probing) maps() []*ebpf.Map {
	all := append(mapsIn(l.o.ProfileMaps), mapsIn(l.p.ProbeMaps)...)
	if l.events != nil {
		all = append(all, mapsIn(l.events.FaultMaps)...)
	}
	return all
}

func (l *probing) Close() error {
	var err error
	if l.events != nil {
		err = l.events.Close()
	}
	return errors.Join(err, l.p.Close(), l.o.Close())
}
