package hotspot

import (
	"encoding/binary"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// TestAttachStarting: a VM that has not made its code cache, its stubs or its interpreter yet is to
// be tried later.
func TestAttachStarting(t *testing.T) {
	for name := range recordings {
		r := loadRecording(t, name+".gz")
		s := r.attach(t, nil).Codes.Schema
		for what, static := range map[string]uint64{
			"code heaps": s.Cache.Heaps, "call stub": s.Stubs.CallStubReturn, "interpreter": s.Stubs.Interpreter,
		} {
			mem := loadRecording(t, name+".gz").memory()
			clear(mem.At(static, 8))
			p, err := r.image().Attach(vmruntime.Target{Memory: mem, Bias: r.Bias})
			if !errors.Is(err, vmruntime.ErrStarting) || p != nil {
				t.Errorf("%s without %s: %v, %v", name, what, p, err)
			}
		}
	}
}

// TestAttachLoading: while libjvm is loaded, its variables are not mapped, are zero, or hold
// addresses of the file. All of that passes.
func TestAttachLoading(t *testing.T) {
	for name := range recordings {
		r := loadRecording(t, name+".gz")
		whole := r.attach(t, nil)
		variable := func(mem *vmtest.Memory, symbol string) []byte {
			return mem.At(r.Bias+r.Symbols[symbol], vmstructs.WordSize)
		}
		unrelocate := func(pointer []byte) {
			binary.LittleEndian.PutUint64(pointer, vmstructs.Number(pointer)-r.Bias)
		}
		states := map[string]func(mem *vmtest.Memory){
			"not mapped": func(mem *vmtest.Memory) { mem.Pieces = nil },
			"JDK 0": func(mem *vmtest.Memory) {
				clear(mem.At(whole.static(t, "Abstract_VM_Version._vm_major_version"), 4))
				if at := whole.static(t, "JDK_Version._current"); at != 0 {
					clear(mem.At(at, whole.field(t, "JDK_Version._major").End()))
				}
			},
		}
		for _, table := range vmstructs.Arrays {
			symbol, strideSymbol := table.Symbols()[0], table.Symbols()[1]
			states["no stride of "+symbol] = func(mem *vmtest.Memory) {
				clear(variable(mem, strideSymbol))
			}
			states["no "+symbol] = func(mem *vmtest.Memory) { clear(variable(mem, symbol)) }
			states["unrelocated "+symbol] = func(mem *vmtest.Memory) { unrelocate(variable(mem, symbol)) }
			for which, entry := range map[string]uint64{"first": 0, "second": 1} {
				states["unrelocated name in the "+which+" entry of "+symbol] = func(mem *vmtest.Memory) {
					array, stride := vmstructs.Number(variable(mem, symbol)),
						vmstructs.Number(variable(mem, strideSymbol))
					column := vmstructs.Number(variable(mem, table.Symbols()[2]))
					unrelocate(mem.At(array+entry*stride+column, vmstructs.WordSize))
				}
			}
		}
		for what, change := range states {
			mem := loadRecording(t, name+".gz").memory()
			change(mem)
			p, err := r.image().Attach(vmruntime.Target{Memory: mem, Bias: r.Bias})
			if !errors.Is(err, vmruntime.ErrStarting) || p != nil {
				t.Errorf("%s, %s: %v, %v", name, what, p, err)
			}
		}
		// Of entries that are missing nobody can tell whether they will come.
		mem := loadRecording(t, name+".gz").memory()
		symbol, strideSymbol := vmstructs.Arrays[0].Symbols()[0], vmstructs.Arrays[0].Symbols()[1]
		array, stride := vmstructs.Number(variable(mem, symbol)), vmstructs.Number(variable(mem, strideSymbol))
		clear(mem.At(array+10*stride, stride))
		if p, err := r.image().Attach(vmruntime.Target{Memory: mem, Bias: r.Bias}); err == nil || p != nil {
			t.Errorf("%s, without most entries: %v, %v", name, p, err)
		}
	}
}

// TestAttachReplacedMeanwhile: whenever during Attach a class is unloaded, and its method's and its
// code's memory are given to another method, neither is remembered by the name of the other.
func TestAttachReplacedMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	const name, version = "testdata/jdk25", 99_999
	p := newPatient(t, name)
	var other codecache.Blob
	if err := p.Cache.Walk(&p.Codes.Schema.Blob, func(blobs []codecache.Blob) error {
		for _, b := range blobs {
			if p.Compiled(&b) && b.Method != p.blob.Method {
				other = b
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	before, _ := p.Versions.Find(p.blob.Version(), p.blob.Begin)
	after, _ := p.Versions.Find(other.Version(), other.Begin)
	r := loadRecording(t, name+".gz")
	for at, reads := 1, 1; at <= reads; at++ {
		p := newPatient(t, name)
		reads = 0
		memory := vmtest.Hooked{Memory: p.mem, Before: func() {
			if reads++; reads == at {
				id, constMethod := p.Codes.Schema.Blob.CompileID, p.field(t, "Method._constMethod")
				binary.LittleEndian.PutUint32(p.mem.At(id.At(p.blob.Addr), 4), version)
				copy(p.mem.At(constMethod.At(p.blob.Method), 8), p.mem.At(constMethod.At(other.Method), 8))
			}
		}}
		vm, err := r.image().Attach(vmruntime.Target{Memory: memory, Bias: r.Bias})
		if err != nil {
			t.Fatal(err)
		}
		versions := &whole(t, vm).Versions
		if got, ok := versions.Find(p.blob.Version(), p.blob.Begin); ok && got.Name != before.Name {
			t.Errorf("replaced at read %d: the old one is remembered as %+v", at, got)
		}
		if got, ok := versions.Find(version, p.blob.Begin); ok && got.Name != after.Name {
			t.Errorf("replaced at read %d: the new one is remembered as %+v", at, got)
		}
	}
}

// TestAttachStripped: without .symtab names still work, and Layout says what does not.
func TestAttachStripped(t *testing.T) {
	r := loadRecording(t, "testdata/jdk17.gz")
	listAddress := r.Symbols[stubList]
	for _, symbol := range []string{currentThread, javaThread, stubList} {
		delete(r.Symbols, symbol)
	}
	p := r.attach(t, nil)
	l := p.Layout()
	// The recording has no more of JavaThreads than was read with the symbols.
	if l.Thread.TLSModule != 0 || l.Thread.Vtable != 0 || l.Thread.ByID || len(l.Missing) != 1 {
		t.Errorf("thread %+v, missing %q", l.Thread, l.Missing)
	}
	for _, sentence := range l.Missing {
		if !strings.Contains(strings.Join(p.Notes(), "\n"), sentence) {
			t.Errorf("notes do not have %q", sentence)
		}
	}
	var routines codecache.Routines
	if err := routines.Read(p.Memory, p.Bias+listAddress); err != nil || len(routines.Pieces) == 0 {
		t.Fatalf("%d routines, %v", len(routines.Pieces), err)
	}
	for _, want := range loadLookups(t, "testdata/jdk17") {
		got := lookUp(p, vmruntime.Site(want.Site))
		if _, ok := routines.Find(want.Site.PC); ok {
			// By the name of the blob that the routine is in.
			if !strings.HasPrefix(got.Result[0], "[stub: ") {
				t.Errorf("got %v", got)
			}
		} else if got.Result[0] != want.Result[0] {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// TestRefresh: a kind of code that was not there at Attach is found later.
func TestRefresh(t *testing.T) {
	for name := range recordings {
		p := newPatient(t, name)
		want := p.Layout().Kinds
		if changed, err := p.Refresh(); changed || err != nil {
			t.Errorf("%s: nothing is pending, but Refresh says %v, %v", name, changed, err)
		}
		delete(p.Kinds.Names, want.Vtable)
		p.UpdateKinds()
		if l := p.Layout(); l.Kinds.Vtable != 0 || len(l.Pending) != 1 || l.Pending[0] != "vtable stubs" {
			t.Fatalf("%s: pending %q, kinds %+v", name, l.Pending, l.Kinds)
		}
		if changed, err := p.Refresh(); !changed || err != nil || p.Layout().Kinds != want ||
			len(p.Layout().Pending) != 0 {
			t.Errorf("%s: Refresh says %v, %v; pending %q", name, changed, err, p.Layout().Pending)
		}
	}
}

// FuzzCodeCache attaches to recorded guests whose memory was changed in some places, and looks
// everything up. Eight bytes of input are a change: four of them where, four of them what.
func FuzzCodeCache(f *testing.F) {
	type guest struct {
		*recording
		lookups []lookup
	}
	var guests []guest
	for _, name := range []string{"testdata/jdk17", "testdata/jdk25"} {
		all := loadLookups(f, name)
		var some []lookup
		for i := 0; i < len(all); i += 7 {
			some = append(some, all[i])
		}
		guests = append(guests, guest{loadRecording(f, name+".gz"), some})
	}
	f.Add([]byte{}, false)
	f.Add([]byte{0, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f}, true)
	f.Add([]byte("\x00\x40\x00\x00\x01\x00\x00\x00\x00\x80\x02\x00\xff\xff\x00\x00"), false)
	f.Fuzz(func(t *testing.T, changes []byte, late bool) {
		g := guests[0]
		if late {
			g = guests[1]
		}
		mem := g.memory()
		defer change(mem, changes)()
		p, err := g.image().Attach(vmruntime.Target{Memory: mem, Bias: g.Bias, Epoch: func() uint32 { return 0 }})
		if (err == nil) != (p != nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if err != nil {
			return
		}
		for more := true; more; {
			more, _ = p.(*Process).Continue()
		}
		for _, l := range g.lookups {
			frames, err := p.Lookup(vmruntime.Site(l.Site))
			if (err == nil) != (len(frames) > 0) {
				t.Fatalf("%+v: %+v, %v", l.Site, frames, err)
			}
		}
	})
}

// change writes into mem what a fuzzer made up, and returns how to undo it.
func change(mem *vmtest.Memory, changes []byte) (undo func()) {
	var total uint64
	for _, p := range mem.Pieces {
		total += uint64(len(p.Data))
	}
	type old struct {
		at *byte
		b  byte
	}
	var before []old
	for ; len(changes) >= 8 && len(before) < 256; changes = changes[8:] {
		where := uint64(binary.LittleEndian.Uint32(changes)) % total
		for _, p := range mem.Pieces {
			if where >= uint64(len(p.Data)) {
				where -= uint64(len(p.Data))
				continue
			}
			for i := range min(4, uint64(len(p.Data))-where) {
				at := &p.Data[where+i]
				before = append(before, old{at, *at})
				*at = changes[4+i]
			}
			break
		}
	}
	return func() {
		for i := len(before) - 1; i >= 0; i-- {
			*before[i].at = before[i].b
		}
	}
}

// changeWords writes whole words into mem, as pointers are written, and returns how to undo it.
// Eight bytes are a change: four of them where, the others what: an even number writes 0, an odd
// one copies the word that it leads to.
func changeWords(mem *vmtest.Memory, changes []byte) (undo func()) {
	var total uint64
	for _, p := range mem.Pieces {
		total += uint64(len(p.Data)) / vmstructs.WordSize
	}
	word := func(i uint64) []byte {
		for _, p := range mem.Pieces {
			n := uint64(len(p.Data)) / vmstructs.WordSize
			if i < n {
				return p.Data[vmstructs.WordSize*i:][:vmstructs.WordSize]
			}
			i -= n
		}
		return nil
	}
	type old struct {
		at     []byte
		before [vmstructs.WordSize]byte
	}
	var all []old
	for ; len(changes) >= 8 && len(all) < 256; changes = changes[8:] {
		at := word(uint64(binary.LittleEndian.Uint32(changes)) % total)
		all = append(all, old{at, [vmstructs.WordSize]byte(at)})
		if what := uint64(binary.LittleEndian.Uint32(changes[4:])); what%2 == 0 {
			clear(at)
		} else {
			copy(at, word(what/2%total))
		}
	}
	return func() {
		for _, o := range slices.Backward(all) {
			copy(o.at, o.before[:])
		}
	}
}

// BenchmarkAttach attaches to a recorded guest: no time is spent in system calls.
func BenchmarkAttach(b *testing.B) {
	r := loadRecording(b, "testdata/jdk17.gz")
	image, mem := r.image(), r.memory()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := image.Attach(vmruntime.Target{Memory: mem, Bias: r.Bias}); err != nil {
			b.Fatal(err)
		}
	}
}

// heapOf returns how many bytes of heap the result of build keeps.
func heapOf(build func() any) int64 {
	var before, after runtime.MemStats
	read := func(m *runtime.MemStats) {
		for range 3 { // names that nobody has any more go with the second
			runtime.GC()
		}
		runtime.ReadMemStats(m)
	}
	read(&before)
	kept := build()
	read(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// TestNewSchemaMissing: the error for an unknown libjvm lists everything that it lacks.
func TestNewSchemaMissing(t *testing.T) {
	p := loadRecording(t, "testdata/jdk17.gz").attach(t, nil)
	s, err := vmstructs.ReadTables(p.Memory, p.Symbol)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.resolve(s); err != nil {
		t.Fatal(err)
	}
	delete(s.Fields, "CodeBlob._name")
	delete(s.Fields, "CompiledMethod._method")
	delete(s.Sizes, "ConstMethod")
	err = p.resolve(s)
	want := "unknown libjvm: missing CodeBlob._name, nmethod._method or CompiledMethod._method, sizeof(ConstMethod)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// FuzzVMStructs reads the arrays out of any memory.
func FuzzVMStructs(f *testing.F) {
	m := &vmtest.Image{Base: 0x10000}
	symbols := vmtest.Tables(m)
	f.Add(m.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := vmstructs.ReadTables(vmstructs.Reader{Mem: (&vmtest.Image{Base: 0x10000, Data: data}).Memory()},
			vmtest.Lookup(symbols))
		if (err == nil) != (s != nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if err != nil {
			return
		}
		for name := range maps.Keys(s.Fields) {
			if len(name) > 2*vmstructs.MaxNameBytes+1 {
				t.Fatalf("name of %d bytes", len(name))
			}
		}
		bareProcess(nil).resolve(s)
	})
}
