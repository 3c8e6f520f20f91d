package hotspotbpf

import (
	"errors"
	"math"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// errHeaps: no HotSpot has that many code heaps.
var errHeaps = errors.New("more code heaps than the walker supports")

// process is what the kernel side must know of a HotSpot process. The caller sets identity, slot
// and the flags about probes.
func process(l *javavm.Layout) (*bpf.HotspotProcess, error) {
	h := &bpf.HotspotProcess{
		CodeLow: l.Cache.Low, CodeHigh: l.Cache.High,
		InterpreterLow: l.Interpreter.Low, InterpreterHigh: l.Interpreter.High,
		SegmentShift: uint32(l.Cache.SegmentShift), BlockHeader: l.Cache.BlockHeaderSize,

		NameNmethod: l.Kinds.NMethod, NameNative: l.Kinds.Native, NameInterpreter: l.Kinds.Interpreter,
		NameVtable: l.Kinds.Vtable, NameAdapter: l.Kinds.Adapter, NameContinuation: l.Kinds.Continuation,
		NameUpcall:     l.Kinds.Upcall,
		CallStubReturn: l.Thread.CallStubReturn, ReturnBarrier: l.Loom.ReturnBarrier,

		BlobName: l.Blob.Name, BlobCodeBegin: l.Blob.CodeBegin, BlobFrameSize: l.Blob.FrameSize,
		BlobFrameComplete: l.Blob.FrameComplete, BlobCompileId: l.Blob.CompileID,
		BlobDeoptHandler: l.Blob.DeoptHandler, BlobDeoptMhHandler: l.Blob.DeoptHandlerMH, BlobOrigPc: l.Blob.OrigPC,
		BlobUpcallData: l.Thread.UpcallData, UpcallAnchor: l.Thread.UpcallAnchor,

		TlsModule: l.Thread.TLSModule, TlsOffset: l.Thread.TLSOffset, JavaThreadVtable: l.Thread.Vtable,
		ThreadOs: l.Thread.OSThread, OsThreadId: l.Thread.OSThreadID,
		ThreadAnchor: l.Thread.Anchor, ThreadStackBase: l.Thread.StackBase, ThreadState: l.Thread.State,
		ThreadInJava: l.Thread.InJava,
		AnchorSp:     l.Thread.LastSP, AnchorFp: l.Thread.LastFP, AnchorPc: l.Thread.LastPC,
		WrapperAnchor: l.Thread.WrapperAnchor, EntryWrapperOffset: l.Thread.CallWrapper,

		MethodConst: l.Method.ConstMethod, ConstMethodSize: l.Method.ConstMethodSize,
		ConstMethodCodeSize: l.Method.CodeSize, MayRedefine: l.Method.MayRedefine,
		ConstMethodConstants: l.Method.Constants, ConstPoolSize: l.Method.PoolSize, MethodNameShift: l.Method.NameShift,
		InterpMethod: l.Interpreter.Method, InterpSenderSp: l.Interpreter.SenderSP, InterpBcp: l.Interpreter.Bytecode,
	}
	if l.Loom.HasChunks {
		layoutChunks(h, l)
	}
	if len(l.Cache.Heaps) > len(h.Heaps) {
		return nil, errHeaps
	}
	for i, heap := range l.Cache.Heaps {
		h.Heaps[i] = bpf.CodeHeap{Low: heap.Low, High: heap.High, SegmentMap: heap.Segmap}
	}
	for flag, set := range map[uint32]bool{
		bpf.HotspotCodeOffset:      l.Blob.CodeIsOffset,
		bpf.HotspotFrameComplete16: l.Blob.FrameCompleteIs16,
		bpf.HotspotDeoptOffset:     l.Blob.DeoptHandlerIs32,
		bpf.HotspotDeoptMH:         l.Blob.HasDeoptHandlerMH,
		bpf.HotspotTLS:             l.Thread.TLSModule != 0 && l.Thread.Vtable != 0,
		bpf.HotspotThreads:         l.Thread.ByID,
		bpf.HotspotUpcallBehind:    l.Thread.UpcallBehind,
	} {
		if set {
			h.Flags |= flag
		}
	}
	return h, nil
}

// layoutChunks adds what leads to the frames that virtual threads have on the heap.
func layoutChunks(h *bpf.HotspotProcess, l *javavm.Layout) {
	c, o := &l.Loom.Chunks, &l.Objects
	h.Flags |= bpf.HotspotChunks
	if c.BottomIsArgSize {
		h.Flags |= bpf.HotspotChunkArgsize
	}
	h.EnterReturn = l.Loom.EnterReturn
	h.HeapLow, h.HeapHigh = o.Heap.Low, o.Heap.High
	h.AddressMask, h.OopMask = math.MaxUint64, math.MaxUint64
	switch {
	case o.OopIsNarrow:
		h.OopMask, h.OopBase, h.OopShift = math.MaxUint32, o.OopBase, uint32(o.OopShift)
	case o.OopIsColoured:
		h.Flags |= bpf.HotspotColoured
		h.OopColourShift, h.BadColours = uint32(o.OopColourShift), o.BadColours
	case o.Heap.Collector == javaheap.CollectorZ:
		h.AddressMask, h.BadColours = o.Heap.Low-1, o.BadColours // the bits above say which view of the heap it is
	}
	f := &o.Forwarding
	h.ForwardTables, h.ForwardGranule = f.Tables, uint32(f.GranuleShift)
	h.ForwardStart, h.ForwardShift, h.ForwardLength, h.ForwardEntries = f.Start, f.AlignmentShift, f.Length, f.Entries
	h.ChunkKlass, h.ChunkKlassMask, h.ChunkKlassAt = c.Klass, math.MaxUint64, o.Klass
	switch {
	case o.KlassInMark:
		h.ChunkKlass, h.ChunkKlassShift = (c.Klass-o.KlassBase)>>o.KlassShift, uint32(o.KlassBit)
	case o.KlassIsNarrow:
		h.ChunkKlass, h.ChunkKlassMask = (c.Klass-o.KlassBase)>>o.KlassShift, math.MaxUint32
	}
	h.EntryCont, h.ContTail = c.EntryContinuation, c.Tail
	h.ChunkParent, h.ChunkCont, h.ChunkPc = c.Parent, c.Continuation, c.PC
	h.ChunkSize, h.ChunkSp, h.ChunkBottom, h.ChunkStack = c.Size, c.SP, c.Bottom, c.Stack
}
