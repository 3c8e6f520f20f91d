// Package nmethod names places in the compiled code of a HotSpot VM, and in the interpreter: it finds the
// compilation that an address is in, decodes what was inlined there, and remembers who a compilation
// was when its code is gone.
//
//	codes := nmethod.NewCodes(v, seen, introduce)
//	codes.Resolve(resolver)
//	err := codes.Attach()
//	frames, err := codes.Lookup(site)
//
// Files:
//
//	lookup                   from a site of a stack to frames
//	codes, layout            what is known of the code cache; what the kernel side must know of it
//	code                     a compilation, decoded
//	evidence, inlinetree     what is known of instructions without records; what was inlined where
//	compilations, versions   all compilations, and what became of them
//	safepoints               polls and calls in a compilation
//	machinecode              prologues, epilogues and calls in machine code
//	stubnames                code that the VM generates for itself
//	versiontable             compilations that are gone
package nmethod

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Memory that Codes keep at most, besides its VersionTable: of decoded compilations, and of
// methods.
const (
	codeBytes   = 12 << 20
	methodBytes = 4 << 20
)

// Codes reads the code of one VM, and names places in it.
type Codes struct {
	*javavm.VM
	Schema    Schema
	Cache     codecache.Cache
	Seen      func(method uint64) (vmruntime.SeenMethod, bool)
	introduce func(method uint64, function, signature string) // tells others who a method is

	Kinds   codecache.KindTable
	learned bool              // kinds has more than layout
	trap    uint64            // what C2's code calls to go on in the interpreter; 0 until it is known
	stubAt  map[uint64]string // names of stubs, by an address in them that is called

	Versions  VersionTable
	nameless  []codecache.Blob // compilations that are yet to enter versions
	byVersion *javavm.Cache[uint32, *code]
	methods   *javavm.Cache[javavm.Key, *methodinfo.Method]
	stubs     stubNames
	texts     *javavm.Cache[uint32, text] // by version

	complete       bool // DebugNonSafepoints
	SafepointsOnly bool // for tests: what would be known if it were off
}

// NewCodes reads the code of a VM. seen is what the kernel side met in the interpreter, introduce
// hears of methods in the code.
func NewCodes(
	of *javavm.VM, seen func(method uint64) (vmruntime.SeenMethod, bool),
	introduce func(method uint64, function, signature string),
) *Codes {
	p := &Codes{VM: of, Seen: seen, introduce: introduce, texts: javavm.NewCache[uint32, text](textBytes)}
	p.Forget(true)
	return p
}

// Forget drops the compilations that were read, and the methods if these are to go, too. They are
// read again when they are asked for.
func (p *Codes) Forget(methods bool) {
	p.byVersion = javavm.NewCache[uint32, *code](codeBytes)
	if methods {
		p.methods = javavm.NewCache[javavm.Key, *methodinfo.Method](methodBytes)
	}
}

// A Schema leads to the code cache, and to what is in it.
type Schema struct {
	Cache  codecache.Schema
	Blob   codecache.BlobSchema
	scopes debuginfo.Schema
	Stubs  codecache.StubSchema
}

// Resolve looks up the fields of code.
func (p *Codes) Resolve(r *vmstructs.Resolver) {
	p.Schema = Schema{
		Cache:  codecache.NewSchema(r),
		Blob:   codecache.NewBlobSchema(r),
		scopes: debuginfo.NewSchema(r),
		Stubs:  codecache.NewStubSchema(r),
	}
}

// Attach reads the headers in the code cache. ErrStarting if the VM has not made its code yet.
func (p *Codes) Attach() (err error) {
	// The VM makes code heaps and the Java heap first, and the interpreter last. Until then there
	// may be some of the code heaps.
	if _, _, err := codecache.InterpreterCode(p.Memory, &p.Schema.Stubs); err != nil {
		return err
	}
	p.Cache.Memory, p.Cache.Schema = &p.Memory, &p.Schema.Cache
	if p.Cache.Heaps, p.Cache.Shift, err = codecache.ReadHeaps(p.Memory, &p.Schema.Cache); err != nil {
		return err
	}
	if err := p.remember(); err != nil {
		return fmt.Errorf("code cache: %w", err)
	}
	if p.complete, err = p.Flag("DebugNonSafepoints"); err != nil {
		p.Note(fmt.Sprintf("The setting of DebugNonSafepoints is unknown (%v): "+
			"a leaf [inlined in M] is M or a method that was inlined in it.", err))
	} else if !p.complete {
		p.Note("DebugNonSafepoints is off: the JVM records inlined methods for calls and safepoint polls " +
			"only. A leaf [inlined in M] is M or a method that was inlined in it. Start the JVM with " +
			"-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints to see which.")
	}
	if !p.Schema.scopes.Known() {
		p.Note("The format of this JVM's debug information is unknown: inlined methods are not shown.")
	}
	return nil
}

// remember walks the code cache, and leaves the compilations there for Continue to name.
func (p *Codes) remember() error {
	return p.walk(&p.Cache, func(b *codecache.Blob) {
		if p.Compiled(b) && len(p.nameless) < maxNameless {
			p.nameless = append(p.nameless, *b)
		}
	})
}

// walk visits all blobs, and takes down their kinds.
func (p *Codes) walk(cache *codecache.Cache, visit func(*codecache.Blob)) error {
	return cache.Walk(&p.Schema.Blob, func(blobs []codecache.Blob) error {
		names := make([]uint64, len(blobs))
		for i := range blobs {
			names[i] = blobs[i].Name
		}
		if err := p.learn(names); err != nil {
			return err
		}
		for i := range blobs {
			visit(&blobs[i])
		}
		return nil
	})
}

const (
	// maxNameless bounds the compilations that Continue names, each some 100 bytes until then.
	maxNameless = 1 << 17
	// namedAtOnce is how many of them it names in one call, which takes a millisecond or two.
	namedAtOnce = 256
)

// Continue takes down who the compilations are that were there when the VM was attached, in case
// they are gone when a sample of them is looked up. That takes most of the time of an attachment,
// and is hardly ever needed: so each call does some of it.
func (p *Codes) Continue() (more bool, err error) {
	n := min(len(p.nameless), namedAtOnce)
	blobs := p.nameless[:n]
	if p.nameless = p.nameless[n:]; len(p.nameless) == 0 {
		p.nameless = nil
	}
	if n == 0 {
		return false, nil
	}
	before := make(map[uint64]codecache.Blob, n) // by address
	var blocks, methods []uint64
	for _, b := range blobs {
		before[b.Addr] = b
		blocks, methods = append(blocks, b.Addr-p.Schema.Cache.BlockSize), append(methods, b.Method)
	}
	named, err := p.MethodReader().Names(methods)
	if err != nil {
		return len(p.nameless) > 0, err
	}
	// A compilation that is still there kept its method alive, so that what was read is its name.
	after, err := p.Cache.ReadBlobs(&p.Schema.Blob, blocks)
	if err != nil {
		return len(p.nameless) > 0, err
	}
	for _, b := range after {
		name, ok := named[b.Method]
		if ok && p.Compiled(&b) && b.Same(before[b.Addr]) {
			p.Versions.add(b.Version(), namedCode{b.Begin, uint32(b.End - b.Begin), b.Tier(), name})
		}
	}
	return len(p.nameless) > 0, nil
}

// Compiled reports whether b is a compiled method or a wrapper of a native one that may still be
// named.
func (p *Codes) Compiled(b *codecache.Blob) bool {
	kind := p.Kinds.Lookup(b.Name)
	return (kind == codecache.KindNMethod || kind == codecache.KindNative) && p.Version.Live(b.State)
}

// learn takes down the kinds of blobs whose names are at these addresses.
func (p *Codes) learn(names []uint64) error {
	news, err := p.Kinds.Learn(p.Memory, names)
	p.learned = p.learned || news
	return err
}

// Forgotten is how many compilations were forgotten by name because there were too many.
func (p *Codes) Forgotten() uint64 { return p.Versions.dropped }

// Loaded remembers a compilation by what the VM announced. It reads nothing.
func (p *Codes) Loaded(c vmruntime.CodeLoad) {
	clean := func(s string) string { return vmstructs.CleanText([]byte(s)) }
	p.Versions.add(c.Version&codecache.VersionMask, namedCode{
		begin:    c.Begin,
		size:     c.Size,
		Identity: methodinfo.Identity{Class: clean(c.Class), Name: clean(c.Name), Signature: clean(c.Signature)},
	})
}
