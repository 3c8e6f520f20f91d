//go:build linux && amd64

package listener

import (
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// kernelLayout returns the description of a HotSpot process for callsite.bpf.h.
func kernelLayout(l *javavm.Layout) *bpf.HotspotProcess {
	h := &bpf.HotspotProcess{
		CodeLow: l.Cache.Low, CodeHigh: l.Cache.High,
		InterpreterLow: l.Interpreter.Low, InterpreterHigh: l.Interpreter.High,
		SegmentShift: uint32(l.Cache.SegmentShift), BlockHeader: l.Cache.BlockHeaderSize,
		NameNmethod: l.Kinds.NMethod, NameNative: l.Kinds.Native, CallStubReturn: l.Thread.CallStubReturn,
		BlobName: l.Blob.Name, BlobCompileId: l.Blob.CompileID,
		BlobDeoptHandler: l.Blob.DeoptHandler, BlobDeoptMhHandler: l.Blob.DeoptHandlerMH, BlobOrigPc: l.Blob.OrigPC,
		AnchorSp: l.Thread.LastSP, AnchorFp: l.Thread.LastFP, AnchorPc: l.Thread.LastPC,
		WrapperAnchor: l.Thread.WrapperAnchor, EntryWrapperOffset: l.Thread.CallWrapper,
		MethodConst: l.Method.ConstMethod, ConstMethodSize: l.Method.ConstMethodSize,
		ConstMethodCodeSize: l.Method.CodeSize,
		InterpMethod:        l.Interpreter.Method, InterpSenderSp: l.Interpreter.SenderSP,
		InterpBcp: l.Interpreter.Bytecode,
	}
	for i, heap := range l.Cache.Heaps {
		h.Heaps[i] = bpf.CodeHeap{Low: heap.Low, High: heap.High, SegmentMap: heap.Segmap}
	}
	if l.Blob.DeoptHandlerIs32 {
		h.Flags |= bpf.HotspotDeoptOffset
	}
	if l.Blob.HasDeoptHandlerMH {
		h.Flags |= bpf.HotspotDeoptMH
	}
	return h
}
