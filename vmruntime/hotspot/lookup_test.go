package hotspot

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/nmethod"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// A patient is a recorded guest whose memory a test may change.
type patient struct {
	*Process
	mem   *vmtest.Memory
	epoch uint32
	site  vmruntime.Site // a return address in code with inlined methods
	blob  codecache.Blob // blob that it is in
}

func newPatient(t *testing.T, name string) *patient {
	t.Helper()
	r := loadRecording(t, name+".gz")
	p := &patient{mem: r.memory()}
	vm, err := r.image().Attach(vmruntime.Target{Memory: p.mem, Bias: r.Bias, Epoch: func() uint32 { return p.epoch }})
	if err != nil {
		t.Fatal(err)
	}
	p.Process = whole(t, vm)
	for _, l := range loadLookups(t, name) {
		if l.Site.Kind == vmruntime.Compiled && len(l.Result) > 2 {
			p.site = vmruntime.Site(l.Site)
		}
	}
	addr, header, err := p.Cache.FindHeader(p.site.PC, p.Codes.Schema.Blob.Header)
	if err != nil {
		t.Fatal(err)
	}
	if p.blob, err = p.Codes.Schema.Blob.Decode(addr, header); err != nil {
		t.Fatal(err)
	}
	return p
}

// set writes a byte of a field of the object at addr.
func (p *patient) set(addr uint64, f vmstructs.Field, b byte) { p.mem.At(f.At(addr), 1)[0] = b }

// forget drops what Attach took down about live code.
func (p *patient) forget() { p.Versions = nmethod.VersionTable{} }

func eachRecording(t *testing.T, run func(t *testing.T, p *patient)) {
	for name := range recordings {
		t.Run(filepath.Base(name), func(t *testing.T) { run(t, newPatient(t, name)) })
	}
}

// TestReusedCode: once other code stands where a sample was taken, the sample is not named after
// it.
func TestReusedCode(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.set(p.blob.Addr, p.Codes.Schema.Blob.CompileID, byte(p.blob.CompileID)+1)
		frames, err := p.Lookup(p.site)
		if err != nil || len(frames) != 1 || !frames[0].Approximate || frames[0].Line != 0 {
			t.Errorf("remembered by name: %+v, %v", frames, err)
		}
		p.forget()
		if frames, err := p.Lookup(p.site); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("forgotten: %+v, %v", frames, err)
		}
	})
}

func TestFreedCode(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.forget()
		p.set(p.blob.Addr-p.Codes.Schema.Cache.BlockSize, p.Codes.Schema.Cache.BlockUsed, 0)
		if frames, err := p.Lookup(p.site); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("%+v, %v", frames, err)
		}
	})
}

// TestZombieCode: up to JDK 19, dead code stays for a while, and what it points to may be gone.
func TestZombieCode(t *testing.T) {
	p := newPatient(t, "testdata/jdk17")
	const notEntrant, zombie = 2, 3
	p.forget()
	p.set(p.blob.Addr, p.Codes.Schema.Blob.State, zombie)
	if frames, err := p.Lookup(p.site); !errors.Is(err, vmruntime.ErrStale) {
		t.Errorf("zombie: %+v, %v", frames, err)
	}
	p.set(p.blob.Addr, p.Codes.Schema.Blob.State, notEntrant)
	if frames, err := p.Lookup(p.site); err != nil || len(frames) < 3 {
		t.Errorf("not entrant: %+v, %v", frames, err)
	}
}

// TestDecodedCodeOutlives: what was decoded once needs no memory any more.
func TestDecodedCodeOutlives(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		want, err := p.Lookup(p.site)
		if err != nil {
			t.Fatal(err)
		}
		p.mem.Pieces = nil
		got, err := p.Lookup(p.site)
		if err != nil || len(got) != len(want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	})
}

// TestCodeChangesMeanwhile: code that is replaced between the first and the last read is not used.
func TestCodeChangesMeanwhile(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.forget()
		reads := 0
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() {
			if reads++; reads == 6 { // the header was read, the end is yet to come
				p.set(p.blob.Addr, p.Codes.Schema.Blob.CompileID, byte(p.blob.CompileID)+1)
			}
		}}}
		if frames, err := p.Lookup(p.site); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("%+v, %v", frames, err)
		}
		if reads <= 6 {
			t.Errorf("the test came too late: there were only %d reads", reads)
		}
		if _, ok := p.Place(p.site); ok {
			t.Error("what was read is kept")
		}
		p.set(p.blob.Addr, p.Codes.Schema.Blob.CompileID, byte(p.blob.CompileID))
		p.forget()
		reads = 0
		if p.Prepare([]vmruntime.Site{p.site}); reads <= 6 {
			t.Errorf("only %d reads for Prepare", reads)
		}
		if _, ok := p.Place(p.site); ok {
			t.Error("what Prepare read is kept")
		}
	})
}

// TestClassesUnloadedMeanwhile: the names in code that was read while classes were unloaded are
// read again.
func TestClassesUnloadedMeanwhile(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.forget()
		reads := 0
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() {
			if reads++; reads == 6 {
				p.epoch++
			}
		}}}
		if frames, err := p.Lookup(p.site); err != nil || len(frames) < 3 {
			t.Errorf("unloaded once: %+v, %v", frames, err)
		}
		p.Forget(true)
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() { p.epoch++ }}}
		if frames, err := p.Lookup(p.site); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("unloaded all the time: %+v, %v", frames, err)
		}
		p.Forget(true)
		if p.Prepare([]vmruntime.Site{p.site}); p.CurrentEpoch() == 0 {
			t.Error("Prepare has read nothing")
		}
		if _, ok := p.Place(p.site); ok {
			t.Error("unloaded all the time: what Prepare read is kept")
		}
	})
}

// TestInterpretedEpoch: a method's name holds for the epoch in which it was read, and for no other.
func TestInterpretedEpoch(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		site := vmruntime.Site{Kind: vmruntime.Interpreted, Method: p.blob.Method, BCI: 0}
		want, err := p.Lookup(site)
		if err != nil || want[0].Function == "" || want[0].Line == 0 {
			t.Fatalf("%+v, %v", want, err)
		}
		p.epoch = 1
		if got, err := p.Lookup(site); err != nil || got[0] != want[0] {
			t.Errorf("the sample's epoch is over, but the method was read in it: %+v, %v", got, err)
		}
		later := site
		later.Epoch = 1
		reads := 0
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() { reads++ }}}
		if got, err := p.Lookup(later); err != nil || got[0] != want[0] || reads == 0 {
			t.Errorf("in the next epoch: %+v, %v, %d reads", got, err, reads)
		}
		later.Epoch = 0
		later.Method += 8 // one that was not read in epoch 0
		if got, err := p.Lookup(later); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("not read in its epoch: %+v, %v", got, err)
		}
		late := vmruntime.Site{Kind: vmruntime.Interpreted, Method: p.blob.Method, Epoch: 1}
		p.Forget(true)
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() { p.epoch = 2 }}}
		if got, err := p.Lookup(late); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("classes were unloaded while it was read: %+v, %v", got, err)
		}
		p.epoch = 1
		p.Prepare([]vmruntime.Site{late})
		if got, err := p.Lookup(late); !errors.Is(err, vmruntime.ErrStale) || p.epoch != 2 {
			t.Errorf("classes were unloaded while Prepare read it: %+v, %v", got, err)
		}
	})
}

// TestRedefinedMethod: the memory of a method becomes another's without a class being unloaded.
// Neither has the other's name, whether the walker met the change before it is looked up or after.
func TestRedefinedMethod(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		body := func() methodinfo.Body {
			bodies, err := p.MethodReader().Bodies([]uint64{p.blob.Method})
			if err != nil {
				t.Fatal(err)
			}
			return bodies[p.blob.Method]
		}
		seenNow := func(since uint32) vmruntime.SeenMethod {
			b := body()
			return vmruntime.SeenMethod{Body: b.ConstMethod, Shape: b.Shape, Name: b.Name, Since: since}
		}
		seen := seenNow(0)
		p.Process.Seen = func(uint64) (vmruntime.SeenMethod, bool) { return seen, true }
		old := vmruntime.Site{Kind: vmruntime.Interpreted, Method: p.blob.Method}
		first, err := p.Lookup(old)
		if err != nil {
			t.Fatal(err)
		}

		// The other one has any other name that the class has, for a method or not.
		name := p.field(t, "ConstMethod._name_index")
		index := p.mem.At(name.At(seen.Body), 2)[0]
		for other := index + 1; ; other++ {
			p.set(seen.Body, name, other)
			if named, err := p.MethodReader().Names([]uint64{p.blob.Method}); err == nil && len(named) == 1 {
				break
			}
			if other == index {
				t.Fatal("no other name was recorded")
			}
		}
		unmet := old
		unmet.BCI = -1
		p.Forget(true)
		if got, err := p.Lookup(unmet); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("the walker met another method there: %+v, %v", got, err)
		}
		p.epoch = vmruntime.EpochChange
		seen = seenNow(p.epoch)
		if got, err := p.Lookup(unmet); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("the sample is from before the change: %+v, %v", got, err)
		}
		now := old
		now.Epoch = p.epoch
		second, err := p.Lookup(now)
		if err != nil || second[0].Function == first[0].Function {
			t.Errorf("the other method is %+v, %v", second, err)
		}
		// A change elsewhere does not make this one unknown.
		p.epoch += vmruntime.EpochChange
		p.Forget(true)
		if got, err := p.Lookup(now); err != nil || got[0] != second[0] {
			t.Errorf("after another method changed: %+v, %v", got, err)
		}
		// A method of the same shape at the same addresses may have another name. Names that the
		// walker could not read say nothing.
		for names, want := range map[uint64]error{seen.Name + 8: vmruntime.ErrStale, 0: nil, seen.Name: nil} {
			p.Process.Seen = func(uint64) (vmruntime.SeenMethod, bool) {
				return vmruntime.SeenMethod{Body: seen.Body, Shape: seen.Shape, Name: names, Since: seen.Since}, true
			}
			p.Forget(true)
			if got, err := p.Lookup(now); !errors.Is(err, want) {
				t.Errorf("seen with names %#x: %+v, %v, want %v", names, got, err, want)
			}
		}
		// What was read of it for compiled code does not count either once it is another one.
		compiled := p.site
		compiled.Epoch = p.epoch
		for _, want := range []string{second[0].Function, first[0].Function} {
			p.Forget(false)
			frames, err := p.Lookup(compiled)
			if err != nil || frames[len(frames)-1].Function != want {
				t.Errorf("compiled code is of %+v, %v, want %s", frames, err, want)
			}
			p.set(seen.Body, name, index)
		}
	})
}

// TestDeadMethodIsNotKept: after the announcement that a class is unloaded its methods can be read
// for a while. What a late look-up of its compiled code reads then must not name the method that
// gets the memory next.
func TestDeadMethodIsNotKept(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.epoch = 1 // the class went after the sample of epoch 0 was taken
		dead := vmruntime.Site{Kind: vmruntime.Compiled, PC: p.blob.Begin, Version: p.blob.Version(), Epoch: 0}
		if _, err := p.Lookup(dead); err != nil {
			t.Fatal(err)
		}
		reads := 0
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() { reads++ }}}
		next := vmruntime.Site{Kind: vmruntime.Interpreted, Method: p.blob.Method, BCI: 0, Epoch: 1}
		if _, err := p.Lookup(next); err != nil || reads == 0 {
			t.Errorf("%v, %d reads: the name of what was there before was used", err, reads)
		}
	})
}

// TestInterpretedWithoutEpoch: nothing is kept that cannot be checked.
func TestInterpretedWithoutEpoch(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.Process.Epoch = nil
		reads := 0
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() { reads++ }}}
		site := vmruntime.Site{Kind: vmruntime.Interpreted, Method: p.blob.Method, BCI: -1}
		for range 2 {
			before := reads
			if frames, err := p.Lookup(site); err != nil || frames[0].BCI != -1 || frames[0].Line != 0 ||
				reads == before {
				t.Errorf("%+v, %v, %d reads", frames, err, reads-before)
			}
		}
	})
}

// TestAnnouncedCode: what was announced is known by name even if it was gone before it could be
// read.
func TestAnnouncedCode(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		gone := vmruntime.Site{Kind: vmruntime.Compiled, Version: 99_999, PC: p.site.PC, Exact: true}
		if frames, err := p.Lookup(gone); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("not announced: %+v, %v", frames, err)
		}
		p.Loaded(vmruntime.CodeLoad{
			Begin: p.site.PC - 16, Size: 64, Version: 99_999,
			Class: "app/Main$$Lambda$3+0x0000000800c02a18", Name: "run\n", Signature: "()V",
		})
		frames, err := p.Lookup(gone)
		if err != nil || len(frames) != 1 || frames[0].Function != "app.Main$$Lambda.run\ufffd" ||
			!frames[0].Approximate {
			t.Errorf("announced: %+v, %v", frames, err)
		}
		gone.PC += 1 << 20
		if frames, err := p.Lookup(gone); err == nil {
			t.Errorf("far from what was announced: %+v", frames)
		}
	})
}

// TestStubMadeRoom: a sample of a stub is not named after a method that is there now.
func TestStubMadeRoom(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		site := vmruntime.Site{Kind: vmruntime.Stub, PC: p.site.PC}
		if frames, err := p.Lookup(site); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("%+v, %v", frames, err)
		}
	})
}

func TestUnknownSites(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		for _, site := range []vmruntime.Site{{}, {Kind: 99}, {Kind: vmruntime.Compiled, PC: 1},
			{Kind: vmruntime.Stub, PC: p.Cache.Heaps[0].High}} {
			if frames, err := p.Lookup(site); !errors.Is(err, vmruntime.ErrUnknown) {
				t.Errorf("%+v: %+v, %v", site, frames, err)
			}
		}
		site := vmruntime.Site{Kind: vmruntime.Interpreted, Method: 8}
		if frames, err := p.Lookup(site); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("no method: %+v, %v", frames, err)
		}
	})
}

// TestPrepare: after Prepare, look-ups of compiled and interpreted sites give what they give
// without it, and need no read. Together the sites take fewer batches of reads than one by one.
func TestPrepare(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		methods, _, err := p.Inlined(p.site)
		if err != nil {
			t.Fatal(err)
		}
		sites := []vmruntime.Site{p.site, p.site, {Kind: vmruntime.Interpreted, Method: 8}}
		for _, m := range methods {
			sites = append(sites, vmruntime.Site{Kind: vmruntime.Interpreted, Method: m, BCI: 0})
		}
		reads := 0
		fresh := func() {
			p.Forget(true)
			reads = 0
		}
		p.Process.Memory.Mem = &vmstructs.Weave{Memory: vmtest.Hooked{Memory: p.mem, Before: func() { reads++ }}}
		type result struct {
			frames []vmruntime.Frame
			err    error
		}
		lookUp := func() (results []result) {
			for _, s := range sites {
				frames, err := p.Lookup(s)
				results = append(results, result{frames, err})
			}
			return results
		}
		fresh()
		want := lookUp()
		alone := reads
		fresh()
		p.Prepare(sites)
		together := reads
		if 2*together > alone {
			t.Errorf("%d reads together, %d one by one", together, alone)
		}
		got := lookUp()
		for i := range want {
			if !slices.Equal(got[i].frames, want[i].frames) || (got[i].err == nil) != (want[i].err == nil) {
				t.Errorf("site %+v: %+v, want %+v", sites[i], got[i], want[i])
			}
		}
		failed := 0
		for _, r := range want {
			if r.err != nil {
				failed++
			}
		}
		const most = 4 // reads of one that fails
		if more := reads - together; more > most*failed || failed == len(want) {
			t.Errorf("%d reads after Prepare, %d of %d sites fail", more, failed, len(want))
		}
		before := reads
		p.Prepare(sites[:2])
		if reads != before {
			t.Errorf("what is known was read again: %d reads", reads-before)
		}
	})
}

// TestPlace: sites at one place have the same frames, which are those of Lookup. Not all addresses
// are places of their own.
func TestPlace(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		p.forget()
		if place, ok := p.Place(p.site); ok {
			t.Errorf("place %#x of code that was not read", place)
		}
		if _, err := p.Lookup(p.site); err != nil {
			t.Fatal(err)
		}
		type at struct {
			place uint64
			exact bool
		}
		known := map[at][]vmruntime.Frame{}
		sites := 0
		for pc := p.blob.Begin; pc < p.blob.End; pc++ {
			for _, exact := range []bool{false, true} {
				site := p.site
				site.PC, site.Exact = pc, exact
				place, ok := p.Place(site)
				frames, err := p.Lookup(site)
				if !ok || err != nil {
					t.Fatalf("%#x: %v, %v", pc, ok, err)
				}
				sites++
				if before, ok := known[at{place, exact}]; ok && !slices.Equal(before, frames) {
					t.Fatalf("%#x has place %#x and frames %+v; others there have %+v", pc, place, frames, before)
				}
				known[at{place, exact}] = frames
			}
		}
		if len(known) < 3 || len(known) > sites/2 {
			t.Errorf("%d places of %d sites", len(known), sites)
		}
		if _, ok := p.Place(vmruntime.Site{Kind: vmruntime.Interpreted, Version: p.site.Version, PC: p.site.PC}); ok {
			t.Error("an interpreted site has a place")
		}
	})
}

// TestFirstCompilation: until the kernel side knows a kind of compiled code, it takes that for
// stubs. Such a frame is named nevertheless, and later ones are not, as a stub may have been there.
func TestFirstCompilation(t *testing.T) {
	eachRecording(t, func(t *testing.T, p *patient) {
		want, err := p.Lookup(p.site)
		if err != nil {
			t.Fatal(err)
		}
		stub := vmruntime.Site{Kind: vmruntime.Stub, PC: p.site.PC, Epoch: p.site.Epoch}
		if frames, err := p.Lookup(stub); !errors.Is(err, vmruntime.ErrStale) {
			t.Errorf("of a known kind: %+v, %v", frames, err)
		}
		p.VM.Layout.Kinds.NMethod = 0
		if frames, err := p.Lookup(stub); err != nil || !slices.Equal(frames, want) {
			t.Errorf("%+v, %v; want %+v", frames, err, want)
		}
	})
}
