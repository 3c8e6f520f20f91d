//go:build linux && amd64

package bpf

import "testing"

// A build is what differs between builds of HotSpot as far as the walker cares.
type build struct {
	name  string
	setup func(*HotspotProcess)
	// Sizes of what stands before code: the block's header, and the blob's up to its first instruction.
	blobHeader uint64
}

// Offsets are those of Debian's 17 and Temurin's 25; 8 has the older interpreter frame and a second deopt handler.
var builds = []build{
	{name: "jdk8", blobHeader: 352, setup: func(p *HotspotProcess) {
		jdk17(p)
		p.Flags |= HotspotDeoptMH
		p.BlobDeoptMhHandler = 136
		p.InterpBcp = -56
	}},
	{name: "jdk17", blobHeader: 352, setup: jdk17},
	{name: "jdk25", blobHeader: 224, setup: func(p *HotspotProcess) {
		jdk17(p)
		p.Flags |= HotspotCodeOffset | HotspotFrameComplete16 | HotspotDeoptOffset
		p.BlockHeader = 8
		p.BlobName, p.BlobCodeBegin, p.BlobFrameSize, p.BlobFrameComplete = 8, 36, 44, 54
		p.BlobCompileId, p.BlobDeoptHandler, p.BlobOrigPc = 212, 176, 208
		p.ThreadAnchor, p.ThreadStackBase, p.ThreadState = 1152, 1048, 1324
		p.ConstMethodSize, p.ConstMethodCodeSize = 56, 34
	}},
}

func jdk17(p *HotspotProcess) {
	p.BlockHeader, p.SegmentShift = 16, 7
	p.BlobName, p.BlobCodeBegin, p.BlobFrameSize, p.BlobFrameComplete = 96, 32, 28, 20
	p.BlobCompileId, p.BlobDeoptHandler, p.BlobOrigPc = 304, 128, 300
	p.ThreadAnchor, p.ThreadStackBase, p.ThreadState = 656, 592, 824
	p.AnchorSp, p.AnchorPc, p.AnchorFp = 0, 8, 16
	p.WrapperAnchor, p.EntryWrapperOffset = 32, -48
	p.MethodConst, p.ConstMethodSize, p.ConstMethodCodeSize = 8, 48, 32
	p.InterpMethod, p.InterpSenderSp, p.InterpBcp = -24, -8, -64
	p.NameNmethod, p.NameNative, p.NameInterpreter = 0x7001, 0x7002, 0x7003
	p.NameVtable, p.NameAdapter, p.NameContinuation = 0x7004, 0x7005, 0x7006
}

// nameOther is the name of a blob of any other kind.
const nameOther = 0x7007

// A fakeVM is what the walker sees of a HotSpot VM: a code heap with its segment map, the blobs in it, and metadata.
type fakeVM struct {
	HotspotProcess
	build
	code, segments, meta region

	heapTop, metaTop uint64 // where the next block and the next structure go
	lastID           uint32 // compile id

	interpreter, callStub, vtable, adapter, continuation *blob
}

const codeHeapSize = 1 << 20

func newFakeVM(t testing.TB, b build) *fakeVM {
	t.Helper()
	vm := &fakeVM{build: b, code: newRegion(t, codeHeapSize), meta: newRegion(t, 256<<10)}
	b.setup(&vm.HotspotProcess)
	vm.Flags |= HotspotUnloadEvents
	vm.segments = newRegion(t, codeHeapSize>>vm.SegmentShift)
	for i := range vm.segments.mem {
		vm.segments.mem[i] = 0xff
	}
	vm.heapTop, vm.metaTop = vm.code.base, vm.meta.base
	vm.CodeLow, vm.CodeHigh = vm.code.base, vm.code.end()
	vm.Heaps[1] = CodeHeap{Low: vm.code.base, High: vm.code.end(), SegmentMap: vm.segments.base}

	vm.interpreter = vm.newBlob(vm.NameInterpreter, make([]byte, 40<<10), 0, 0)
	vm.InterpreterLow, vm.InterpreterHigh = vm.interpreter.begin, vm.interpreter.end()
	vm.callStub = vm.newBlob(nameOther, make([]byte, 512), 0, 0)
	vm.code.put(vm.callStub.begin+62, []byte{0xff, 0xd6}) // call rsi
	vm.CallStubReturn = vm.callStub.begin + 64
	vm.vtable = vm.newBlob(vm.NameVtable, make([]byte, 256), 0, 0)
	vm.adapter = vm.newBlob(vm.NameAdapter, make([]byte, 256), 0, 0)
	vm.continuation = vm.newBlob(vm.NameContinuation, make([]byte, 256), 0, 0)
	vm.ReturnBarrier = vm.callStub.begin + 200
	return vm
}

// pid is the key under which the VM is attached; no process has it.
func (vm *fakeVM) pid() uint32 { return vm.Serial }

// A blob is a CodeBlob in the code heap.
type blob struct {
	vm        *fakeVM
	addr      uint64 // of the CodeBlob
	begin     uint64 // first instruction
	size      uint64 // of the code
	frame     uint64 // bytes
	id        uint32 // compile id
	nextBlock uint64
}

func (b *blob) end() uint64 { return b.begin + b.size }

// newBlob appends a block to the code heap. frame is in words, as HotSpot has it.
func (vm *fakeVM) newBlob(name uint64, code []byte, frame int32, complete uint32) *blob {
	b := vm.newBlobAt(vm.heapTop, name, code, frame, complete)
	vm.heapTop = b.nextBlock
	return b
}

// newBlobAt overwrites whatever is at block, which begins a segment.
func (vm *fakeVM) newBlobAt(block, name uint64, code []byte, frame int32, complete uint32) *blob {
	segment := uint64(1) << vm.SegmentShift
	b := &blob{vm: vm, addr: block + uint64(vm.BlockHeader), size: uint64(len(code)), frame: uint64(frame) * 8}
	b.begin = b.addr + vm.blobHeader
	count := (b.end() - block + segment - 1) / segment
	b.nextBlock = block + count*segment

	first := (block - vm.code.base) / segment
	vm.segments.mem[first] = 0
	for i, tag := uint64(1), byte(1); i < count; i++ {
		vm.segments.mem[first+i] = tag
		if tag++; tag == 0xff {
			tag = 1
		}
	}
	clear(vm.code.at(block)[:b.begin-block])
	vm.code.put(b.begin, code)
	vm.code.put64(b.addr+uint64(vm.BlobName), name)
	if vm.Flags&HotspotCodeOffset != 0 {
		vm.code.put32(b.addr+uint64(vm.BlobCodeBegin), uint32(vm.blobHeader))
	} else {
		vm.code.put64(b.addr+uint64(vm.BlobCodeBegin), b.begin)
	}
	vm.code.put32(b.addr+uint64(vm.BlobFrameSize), uint32(frame))
	if vm.Flags&HotspotFrameComplete16 != 0 {
		vm.code.put16(b.addr+uint64(vm.BlobFrameComplete), uint16(complete))
		vm.code.put16(b.addr+uint64(vm.BlobFrameComplete)+2, 0xdead) // the field behind it
	} else {
		vm.code.put32(b.addr+uint64(vm.BlobFrameComplete), complete)
	}
	return b
}

// compile adds an nmethod whose frame has that many bytes and is complete from an offset on.
func (vm *fakeVM) compile(code []byte, frame int32, complete uint32) *blob {
	b := vm.newBlob(vm.NameNmethod, code, frame/8, complete)
	vm.identify(b)
	return b
}

// identify makes b a compilation of its own.
func (vm *fakeVM) identify(b *blob) {
	vm.lastID++
	b.id = vm.lastID
	vm.code.put32(b.addr+uint64(vm.BlobCompileId), b.id)
	vm.setDeopt(b, vm.BlobDeoptHandler, ^uint64(0))
}

// setDeopt puts a deopt handler at an offset of the code; ^0 is none.
func (vm *fakeVM) setDeopt(b *blob, field uint32, off uint64) {
	at := b.addr + uint64(field)
	switch {
	case vm.Flags&HotspotDeoptOffset != 0 && off == ^uint64(0):
		vm.code.put32(at, ^uint32(0))
	case vm.Flags&HotspotDeoptOffset != 0:
		vm.code.put32(at, uint32(b.begin+off-b.addr))
	case off == ^uint64(0):
		vm.code.put64(at, 0)
	default:
		vm.code.put64(at, b.begin+off)
	}
}

// typical adds an nmethod as C2 makes most of them, with room for calls from offset 0x20 to 0xe0.
func (vm *fakeVM) typical(frame int32) *blob {
	code := template{frame: frame, prologue: prologueC2(frame), epilogue: epilogue17(frame)}.assemble(0x100)
	return vm.compile(code.bytes, frame, code.complete)
}

// returnTo makes the instruction before an offset a call, so that the offset is a return address.
func (b *blob) returnTo(off uint64) uint64 {
	b.vm.code.put(b.begin+off-5, []byte{0xe8, 0, 0, 0, 0})
	return b.begin + off
}

// A method is a Method with its ConstMethod.
type method struct {
	addr  uint64
	codes uint64 // first bytecode
}

func (vm *fakeVM) newMethod(codeSize uint16) method {
	m := vm.allocate(32)
	c := vm.allocate(uint64(vm.ConstMethodSize) + uint64(codeSize))
	vm.meta.put64(m+uint64(vm.MethodConst), c)
	vm.meta.put16(c+uint64(vm.ConstMethodCodeSize), codeSize)
	return method{m, c + uint64(vm.ConstMethodSize)}
}

// allocate returns zeroed metadata.
func (vm *fakeVM) allocate(n uint64) uint64 {
	addr := vm.metaTop
	vm.metaTop += (n + 15) &^ 15
	return addr
}

// What frames of the VM look like in a sample.
func (b *blob) jit(pc uint64) Frame {
	return Frame(uint64(FrameJIT)<<60 | uint64(b.id)<<32 | (pc - b.vm.CodeLow))
}

func (vm *fakeVM) stub(pc uint64) Frame { return Frame(uint64(FrameStub)<<60 | (pc - vm.CodeLow)) }

func (m method) frame(bci uint16) Frame {
	return Frame(uint64(FrameInterpreted)<<60 | m.addr>>3<<16 | uint64(bci))
}

func native(pc uint64) Frame { return Frame(uint64(FrameNative)<<60 | pc) }
