package hotspot

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/elf"
	"encoding/gob"
	"os"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// A recording is what was read of a guest's memory, with what its libjvm taught: enough to attach
// again without the guest.
type recording struct {
	Bias    uint64
	Symbols map[string]uint64
	TLSSlot uint64
	Bounds  [2]uint64 // bounds of libjvm's addresses
	Pieces  []vmtest.Piece
}

func (r *recording) image() *Image {
	return &Image{&javavm.Build{Machine: elf.EM_X86_64, Symbols: r.Symbols, TLSSlot: r.TLSSlot, Low: r.Bounds[0],
		High: r.Bounds[1]}}
}

// field looks up a field in the tables of a VM.
func (p *Process) field(t testing.TB, names ...string) vmstructs.Field {
	t.Helper()
	tables, err := vmstructs.ReadTables(p.Memory, p.Symbol)
	if err != nil {
		t.Fatal(err)
	}
	r := &vmstructs.Resolver{Tables: tables}
	f := r.Field(names...)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return f
}

// static looks up a static variable in the tables of a VM, 0 if it is not there.
func (p *Process) static(t testing.TB, names ...string) (addr uint64) {
	t.Helper()
	tables, err := vmstructs.ReadTables(p.Memory, p.Symbol)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		addr = cmp.Or(addr, (&vmstructs.Resolver{Tables: tables}).OptionalStatic(name))
	}
	return addr
}

// calldata looks up the fields of counts in the tables of a VM.
func (p *Process) calldata(t testing.TB) *calldata.Schema {
	t.Helper()
	tables, err := vmstructs.ReadTables(p.Memory, p.Symbol)
	if err != nil {
		t.Fatal(err)
	}
	s := calldata.NewSchema(tables)
	return &s
}

// handle reads the object that a handle leads to.
func (p *Process) handle(addr uint64) (uint64, error) {
	reference, err := p.Memory.Word(addr)
	return p.VM.Layout.Objects.Uncolour(reference), err
}

// scanned is how many bytes before an address ObjectAt looks at.
const scanned = 4 << 10

// bareProcess is a process of which nothing has been read.
func bareProcess(mem vmruntime.Memory) *Process {
	return newProcess(javavm.New(&javavm.Build{}, vmruntime.Target{Memory: mem}), nil)
}

func (r *recording) memory() *vmtest.Memory { return &vmtest.Memory{Pieces: r.Pieces} }

// attach opens the recorded guest. Whatever was not read when it was recorded is unmapped.
func (r *recording) attach(t testing.TB, epoch func() uint32) *Process {
	t.Helper()
	p, err := r.image().Attach(vmruntime.Target{Memory: r.memory(), Bias: r.Bias, Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	return whole(t, p)
}

// whole has a process do what its attachment left for later.
func whole(t testing.TB, attached vmruntime.Process) *Process {
	t.Helper()
	p := attached.(*Process)
	for more := true; more; {
		var err error
		if more, err = p.Continue(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func loadRecording(t testing.TB, file string) *recording {
	t.Helper()
	r, err := readRecording(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readRecording(file string) (*recording, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	r := new(recording)
	return r, gob.NewDecoder(z).Decode(r)
}

// recording is what was read of a guest through its recorder.
func (vm *jvm) recording(r *recorder) *recording {
	return &recording{
		Bias:    vm.bias,
		Symbols: vm.image.Symbols,
		TLSSlot: vm.image.TLSSlot,
		Bounds:  [2]uint64{vm.image.Low, vm.image.High},
		Pieces:  r.merged(),
	}
}

func (r *recording) save(t testing.TB, file string) {
	t.Helper()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err := gob.NewEncoder(z).Encode(r); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A recorder takes down everything that is read through it.
type recorder struct {
	vmruntime.Memory
	pieces []vmtest.Piece
}

func (r *recorder) Read(addr uint64, p []byte) error {
	err := r.Memory.Read(addr, p)
	if err == nil {
		r.pieces = append(r.pieces, vmtest.Piece{Addr: addr, Data: bytes.Clone(p)})
	}
	return err
}

func (r *recorder) ReadBatch(ranges []vmruntime.Range) error {
	err := r.Memory.ReadBatch(ranges)
	for _, x := range ranges {
		if x.OK {
			r.pieces = append(r.pieces, vmtest.Piece{Addr: x.Addr, Data: bytes.Clone(x.Buf)})
		}
	}
	return err
}

// merged joins what was read; where pieces overlap, the first reading counts.
func (r *recorder) merged() []vmtest.Piece {
	slices.SortStableFunc(r.pieces, func(a, b vmtest.Piece) int { return cmp.Compare(a.Addr, b.Addr) })
	var out []vmtest.Piece
	for _, p := range r.pieces {
		if n := len(out); n > 0 && p.Addr <= out[n-1].Addr+uint64(len(out[n-1].Data)) {
			last := &out[n-1]
			if known := last.Addr + uint64(len(last.Data)) - p.Addr; known < uint64(len(p.Data)) {
				last.Data = append(last.Data, p.Data[known:]...)
			}
			continue
		}
		out = append(out, vmtest.Piece{Addr: p.Addr, Data: bytes.Clone(p.Data)})
	}
	return out
}
