//go:build linux && amd64

package bpf

import "testing"

// A build is what differs between builds of HotSpot as far as the walker cares.
type build struct {
	name  string
	setup func(*HotspotProcess)
	// Sizes of what stands before code: the block's header, and the blob's up to its first
	// instruction.
	blobHeader uint64
}

// Offsets are those of Debian's 17 and Temurin's 25; 8 has the older interpreter frame and a second
// deopt handler.
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
		p.Flags ^= HotspotCodeOffset | HotspotFrameComplete16 | HotspotDeoptOffset | HotspotUpcallBehind
		p.BlobUpcallData, p.UpcallAnchor = 72, 8
		p.BlockHeader = 8
		p.BlobName, p.BlobCodeBegin, p.BlobFrameSize, p.BlobFrameComplete = 8, 36, 44, 54
		p.BlobCompileId, p.BlobDeoptHandler, p.BlobOrigPc = 212, 176, 208
		p.ThreadAnchor, p.ThreadStackBase, p.ThreadState = 1152, 1048, 1324
		p.ConstMethodSize, p.ConstMethodCodeSize = 56, 34
	}},
	{name: "jdk28", blobHeader: 224, setup: func(p *HotspotProcess) {
		jdk17(p)
		p.Flags ^= HotspotCodeOffset | HotspotFrameComplete16 | HotspotDeoptOffset | HotspotUpcallBehind
		p.BlobUpcallData, p.UpcallAnchor = 72, 8
		p.BlockHeader = 8
		p.BlobName, p.BlobCodeBegin, p.BlobFrameSize, p.BlobFrameComplete = 8, 36, 44, 54
		p.BlobCompileId, p.BlobDeoptHandler, p.BlobOrigPc = 212, 176, 208
		p.ThreadInJava = 4
	}},
}

func jdk17(p *HotspotProcess) {
	p.BlockHeader, p.SegmentShift = 16, 7
	p.BlobName, p.BlobCodeBegin, p.BlobFrameSize, p.BlobFrameComplete = 96, 32, 28, 20
	p.BlobCompileId, p.BlobDeoptHandler, p.BlobOrigPc = 304, 128, 300
	p.ThreadAnchor, p.ThreadStackBase, p.ThreadState = 656, 592, 824
	p.ThreadInJava = 8
	p.AnchorSp, p.AnchorPc, p.AnchorFp = 0, 8, 16
	p.WrapperAnchor, p.EntryWrapperOffset = 32, -48
	p.MethodConst, p.ConstMethodSize, p.ConstMethodCodeSize = 8, 48, 32
	p.ConstMethodConstants, p.ConstPoolSize, p.MethodNameShift = 8, 72, 16
	p.InterpMethod, p.InterpSenderSp, p.InterpBcp = -24, -8, -64
	p.NameNmethod, p.NameNative, p.NameInterpreter = 0x7001, 0x7002, 0x7003
	p.NameVtable, p.NameAdapter, p.NameContinuation, p.NameUpcall = 0x7004, 0x7005, 0x7006, 0x7008
	p.Flags |= HotspotUpcallBehind
	p.BlobUpcallData, p.UpcallAnchor = 160, 0
}

// nameOther is the name of a blob of any other kind.
const nameOther = 0x7007

// A fakeVM is what the walker sees of a HotSpot VM: a code heap with its segment map, the blobs in
// it, and metadata.
type fakeVM struct {
	HotspotProcess
	build
	code, segments, meta region

	heapTop, metaTop uint64 // where the next block and the next structure go
	lastID           uint32 // compile id

	interpreter, callStub, vtable, adapter, continuation, upcall *blob
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
	vm.upcall = vm.newBlob(vm.NameUpcall, make([]byte, 256), 0, 0)
	vm.putUpcallData(upcallData)
	vm.ReturnBarrier = vm.callStub.begin + 200
	return vm
}

// upcallData is where the frame of the stub for upcalls has what it keeps, from the stack pointer.
const upcallData = 96

// putUpcallData has the stub for upcalls say where that is: in JDK 8, which has no such stubs, as
// JDK 21 has it.
func (vm *fakeVM) putUpcallData(offset uint32) {
	at := vm.upcall.addr + uint64(vm.BlobUpcallData)
	if vm.Flags&HotspotUpcallBehind != 0 {
		if vm.name == "jdk8" {
			vm.code.put64(at, 400) // where exceptions are handled
			at += 8
		}
		vm.code.put64(at, 0x7f00_0000_4000) // a reference
		at += 8
	}
	vm.code.put32(at, offset)
}

// pid is the key under which the VM is attached; no process has it.
func (vm *fakeVM) pid() uint32 { return vm.Serial }

// A method is a Method with its ConstMethod.
type method struct {
	addr  uint64
	codes uint64 // first bytecode
}

func (vm *fakeVM) newMethod(codeSize uint16) method {
	m := vm.allocate(32)
	c := vm.allocate(uint64(vm.ConstMethodSize) + uint64(codeSize))
	vm.meta.put64(m+uint64(vm.MethodConst), c)
	if vm.MethodNameShift != 0 {
		pool := vm.allocate(uint64(vm.ConstPoolSize) + 2*8)
		vm.meta.put64(c+uint64(vm.ConstMethodConstants), pool)
		vm.meta.put16(c+uint64(vm.ConstMethodCodeSize)+uint64(vm.MethodNameShift/8), 1)
		vm.meta.put64(pool+uint64(vm.ConstPoolSize)+8, 0x5000) // a Symbol*
	}
	vm.meta.put16(c+uint64(vm.ConstMethodCodeSize), codeSize)
	return method{m, c + uint64(vm.ConstMethodSize)}
}

// mayRedefine has the VM say whether methods may be redefined.
func (vm *fakeVM) mayRedefine(may bool) {
	if vm.MayRedefine == 0 {
		vm.MayRedefine = vm.allocate(1)
	}
	vm.meta.mem[vm.MayRedefine-vm.meta.base] = 0
	if may {
		vm.meta.mem[vm.MayRedefine-vm.meta.base] = 1
	}
}

// allocate returns zeroed metadata.
func (vm *fakeVM) allocate(n uint64) uint64 {
	addr := vm.metaTop
	vm.metaTop += (n + 15) &^ 15
	return addr
}
