package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Memory that a codes keeps at most, besides its versionTable: of decoded compilations, and of
// methods.
const (
	codeBytes   = 8 << 20
	methodBytes = 2 << 20
)

// A codes reads the code of one VM, and names places in it.
type codes struct {
	*vm
	schema    codeSchema
	codeCache codecache.Cache
	seen      func(method uint64) (vmruntime.SeenMethod, bool)
	introduce func(method uint64, function, signature string) // tells others who a method is

	kinds   codecache.KindTable
	learned bool              // kinds has more than layout
	trap    uint64            // what C2's code calls to go on in the interpreter; 0 until it is known
	stubAt  map[uint64]string // names of stubs, by an address in them that is called

	versions  versionTable
	nameless  []codecache.Blob // compilations that are yet to enter versions
	byVersion *cache[uint32, *code]
	methods   *cache[methodKey, *method]
	stubs     stubNames
	texts     *cache[uint32, text] // by version

	complete       bool // DebugNonSafepoints
	safepointsOnly bool // for tests: what would be known if it were off
}

// newCodes reads the code of a VM. seen is what the kernel side met in the interpreter, introduce
// hears of methods in the code.
func newCodes(
	of *vm, seen func(uint64) (vmruntime.SeenMethod, bool), introduce func(method uint64, function, signature string),
) *codes {
	return &codes{
		vm: of, seen: seen, introduce: introduce,
		byVersion: newCache[uint32, *code](codeBytes),
		methods:   newCache[methodKey, *method](methodBytes),
		texts:     newCache[uint32, text](textBytes),
	}
}

// A codeSchema leads to the code cache, and to what is in it.
type codeSchema struct {
	cache  codecache.Schema
	blob   codecache.BlobSchema
	scopes debuginfo.Schema
	stubs  codecache.StubSchema
}

// resolve looks up the fields of code.
func (p *codes) resolve(r *vmstructs.Resolver) {
	p.schema = codeSchema{
		cache:  codecache.NewSchema(r),
		blob:   codecache.NewBlobSchema(r),
		scopes: debuginfo.NewSchema(r),
		stubs:  codecache.NewStubSchema(r),
	}
}

// attach reads the headers in the code cache, and returns notes on what is not known of code.
// ErrStarting if the VM has not made the code that every walk needs.
func (p *codes) attach() (notes []string, err error) {
	// The VM makes code heaps and the Java heap first, and the interpreter last. Until then there
	// may be some of the code heaps.
	if _, _, err := codecache.InterpreterCode(p.memory, &p.schema.stubs); err != nil {
		return nil, err
	}
	p.codeCache.Memory, p.codeCache.Schema = &p.memory, &p.schema.cache
	if p.codeCache.Heaps, p.codeCache.Shift, err = codecache.ReadHeaps(p.memory, &p.schema.cache); err != nil {
		return nil, err
	}
	if err := p.remember(); err != nil {
		return nil, fmt.Errorf("code cache: %w", err)
	}
	if p.complete, err = p.Flag("DebugNonSafepoints"); err != nil {
		notes = append(notes, fmt.Sprintf("The setting of DebugNonSafepoints is unknown (%v): "+
			"a leaf [inlined in M] is M or a method that was inlined in it.", err))
	} else if !p.complete {
		notes = append(notes, "DebugNonSafepoints is off: the JVM records inlined methods for calls and safepoint polls "+
			"only. A leaf [inlined in M] is M or a method that was inlined in it. Start the JVM with "+
			"-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints to see which.")
	}
	if !p.schema.scopes.Known() {
		notes = append(notes, "The format of this JVM's debug information is unknown: inlined methods are not shown.")
	}
	return notes, nil
}

// remember walks the code cache, and leaves the compilations there for Continue to name.
func (p *codes) remember() error {
	return p.codeCache.Walk(&p.schema.blob, func(blobs []codecache.Blob) error {
		names := make([]uint64, len(blobs))
		for i := range blobs {
			names[i] = blobs[i].Name
		}
		if err := p.learn(names); err != nil {
			return err
		}
		for i := range blobs {
			if p.compiled(&blobs[i]) && len(p.nameless) < maxNameless {
				p.nameless = append(p.nameless, blobs[i])
			}
		}
		return nil
	})
}

const (
	// maxNameless bounds the compilations that Continue names, each some 100 bytes until then.
	maxNameless = 1 << 17
	// namedAtOnce is how many of them it names in one call, which takes some milliseconds.
	namedAtOnce = 512
)

// Continue takes down who the compilations are that were there when the VM was attached, in case
// they are gone when a sample of them is looked up. That takes most of the time of an attachment,
// and is hardly ever needed: so each call does some of it.
func (p *codes) Continue() (more bool, err error) {
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
		blocks, methods = append(blocks, b.Addr-p.schema.cache.BlockSize), append(methods, b.Method)
	}
	named, err := p.methodReader().names(methods)
	if err != nil {
		return len(p.nameless) > 0, err
	}
	// A compilation that is still there kept its method alive, so that what was read is its name.
	after, err := p.codeCache.ReadBlobs(&p.schema.blob, blocks)
	if err != nil {
		return len(p.nameless) > 0, err
	}
	for _, b := range after {
		name, ok := named[b.Method]
		if ok && p.compiled(&b) && b.Same(before[b.Addr]) {
			p.versions.add(b.Version(), namedCode{b.Begin, uint32(b.End - b.Begin), b.Tier(), name})
		}
	}
	return len(p.nameless) > 0, nil
}

// compiled reports whether b is a compiled method or a wrapper of a native one that may still be
// named.
func (p *codes) compiled(b *codecache.Blob) bool {
	kind := p.kinds.Lookup(b.Name)
	return (kind == codecache.KindNMethod || kind == codecache.KindNative) && p.version.live(b.State)
}

// learn takes down the kinds of blobs whose names are at these addresses.
func (p *codes) learn(names []uint64) error {
	news, err := p.kinds.Learn(p.memory, names)
	p.learned = p.learned || news
	return err
}

// Forgotten is how many compilations were forgotten by name because there were too many.
func (p *codes) Forgotten() uint64 { return p.versions.dropped }

// Loaded remembers a compilation by what the VM announced. It reads nothing.
func (p *codes) Loaded(c vmruntime.CodeLoad) {
	clean := func(s string) string { return vmstructs.CleanText([]byte(s)) }
	p.versions.add(c.Version&codecache.VersionMask, namedCode{
		begin:      c.Begin,
		size:       c.Size,
		methodName: methodName{clean(c.Class), clean(c.Name), clean(c.Signature)},
	})
}
