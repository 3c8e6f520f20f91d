package hotspotbpf

import (
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// heap is what the kernel side must know of a HotSpot process's objects. The caller sets the
// serial.
func heap(layout *javavm.Layout) *bpf.HotspotHeap {
	l, mounted := &layout.Objects, &layout.Loom.Mounted
	h := &bpf.HotspotHeap{
		NarrowKlassBase: l.KlassBase, NarrowKlassShift: uint32(l.KlassShift), KlassBit: uint32(l.KlassBit),
		NarrowOopBase: l.OopBase, NarrowOopShift: uint32(l.OopShift), OopColourShift: uint32(l.OopColourShift),
		ObjectKlass: l.Klass, ArrayLength: l.ArrayLength,
		KlassName: l.KlassName, KlassLayout: l.LayoutHelper, SymbolLength: l.SymbolLength, SymbolBody: l.SymbolBody,
		TlabStart: l.TLABStart, TlabTop: l.TLABTop, TlabEnd: l.TLABEnd,
		ThreadObject: l.ThreadObject, ParkBlocker: l.ParkBlocker, MonitorObject: l.MonitorObject,
		MonitorOwner:  l.MonitorOwner,
		ThreadCurrent: mounted.Current, ThreadId: mounted.ID,
		RegionTable: l.Heap.RegionTable, RegionShift: uint64(l.Heap.RegionShift), RegionType: l.Heap.RegionTag,
		RegionEden: l.Heap.EdenTag, RegionSurvivor: l.Heap.SurvivorTag,
		RegionOldMask: l.Heap.OldMask, RegionHumongousMask: l.Heap.HumongousMask,
		YoungLow: l.Heap.YoungLow, YoungHigh: l.Heap.YoungHigh,
	}
	if l.Heap.Collector == javaheap.CollectorG1 && l.Heap.RegionShift > 0 {
		// Larger ones are humongous: see G1CollectedHeap::humongous_threshold_for.
		h.LargestBuffered = 1 << (l.Heap.RegionShift - 1)
	}
	if l.HasAllocated {
		h.ThreadAllocated = l.Allocated
		h.ThreadList, h.ListLength, h.ListThreads, h.ThreadNext = l.ThreadList, l.ListLength, l.ListThreads,
			l.ThreadNext
		h.ThreadOs, h.OsThreadId = l.OSThread, l.OSThreadID
	}
	for flag, set := range map[uint32]bool{
		bpf.HeapNarrowKlass:   l.KlassIsNarrow,
		bpf.HeapCompactHeader: l.KlassInMark,
		bpf.HeapNarrowOop:     l.OopIsNarrow,
		bpf.HeapThreadHandle:  l.ThreadObjectIsHandle,
		bpf.HeapMonitorHandle: l.MonitorObjectIsHandle,
		bpf.HeapParkBlocker:   l.HasParkBlocker,
		bpf.HeapColoured:      l.OopIsColoured,
		bpf.HeapMounted:       layout.Loom.HasMounted,
		bpf.HeapConcurrent:    l.Heap.Collector.Moves(),
		bpf.HeapRegions:       l.Heap.Generations == javaheap.GenerationsByRegion,
		bpf.HeapYoungBounds:   l.Heap.Generations == javaheap.GenerationsByBounds,
	} {
		if set {
			h.Flags |= flag
		}
	}
	return h
}
