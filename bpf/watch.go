package bpf

import (
	"os"

	"github.com/cilium/ebpf"
)

// A Watch is how each value of a map of watches begins. Layout and units: watch.bpf.h.
type Watch = ListenerWatch

// Bounds of the kernel side of watches.
const (
	MaxWatches     = 16 // processes that are watched at once: MAX_WATCHES
	WatchAddresses = 3  // addresses of a watch: WATCH_ADDRESSES
)

// Head is what all watches have in common.
func (w *CallWatch) Head() *Watch { return &w.Watch }

// Head is what all watches have in common.
func (w *MonitorWatch) Head() *Watch { return (*Watch)(&w.Watch) }

// setPageRings sizes the rings of short notices: a page is the least that the kernel takes, and its
// size is the machine's.
func setPageRings(spec *ebpf.CollectionSpec) {
	for _, name := range []string{"watch_ends", "usdt_notices"} {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = uint32(os.Getpagesize())
		}
	}
}
