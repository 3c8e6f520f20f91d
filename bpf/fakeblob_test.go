//go:build linux && amd64

package bpf

// A blob is a CodeBlob in the code heap.
type blob struct {
	vm        *fakeVM
	addr      uint64 // address of the CodeBlob
	begin     uint64 // first instruction
	size      uint64 // bytes of the code
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

// blobAt is the blob that stands around pc now.
func (vm *fakeVM) blobAt(pc uint64) *blob {
	segment := (pc - vm.code.base) >> vm.SegmentShift
	for vm.segments.mem[segment] != 0 {
		segment--
	}
	b := &blob{vm: vm, addr: vm.code.base + segment<<vm.SegmentShift + uint64(vm.BlockHeader)}
	b.begin = b.addr + vm.blobHeader
	b.frame = uint64(vm.code.int(b.addr+uint64(vm.BlobFrameSize))) * 8
	b.id = vm.code.int(b.addr + uint64(vm.BlobCompileId))
	return b
}

// returnTo makes the instruction before an offset a call, so that the offset is a return address.
func (b *blob) returnTo(off uint64) uint64 {
	b.vm.code.put(b.begin+off-5, []byte{0xe8, 0, 0, 0, 0})
	return b.begin + off
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
