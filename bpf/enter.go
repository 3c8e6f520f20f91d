package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Types of the object of monitor enters. Layouts and units: monitorenter.bpf.h.
type (
	MonitorWatch = MonitorEnterEnterWatch
	EnterSite    = MonitorEnterEnterSite
	EnterHit     = MonitorEnterEnterHit
)

// Bounds of the kernel side of monitor enters.
const (
	MaxEnterHits  = 64 // hits of a watch that are recorded: MAX_ENTER_HITS
	MaxEnterWalks = 12 // records with a context, of a watch: MAX_ENTER_WALKS
)

// enterRingBytes is the size of the stream of contexts: those of a watch fit twice, however long
// they are.
const enterRingBytes = 1 << 18

// LoadEnters loads the program behind breakpoints on monitor enters next to o. heaps are those of
// the VMs, as in ProbeObjects. The stream and the counters of the object are its own. The caller
// closes it before o.
func (o *Objects) LoadEnters(heaps *ebpf.Map) (*MonitorEnterObjects, error) {
	spec, err := LoadMonitorEnter()
	if err != nil {
		return nil, fmt.Errorf("read object of monitor enters: %w", err)
	}
	if err := setScratches(spec); err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = enterRingBytes
	setPageRings(spec)
	shared := map[string]*ebpf.Map{"heaps": heaps, "processes": o.Processes, "epochs": o.Epochs}
	for name, m := range shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	var enters MonitorEnterObjects
	err = spec.Variables["java_only"].Set(true)
	if err == nil {
		err = spec.LoadAndAssign(&enters, o.collection(shared))
	}
	if err != nil {
		return nil, fmt.Errorf("load program of monitor enters: %w", err)
	}
	return &enters, nil
}
