package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Memory that a Process keeps at most, besides its versionTable: of decoded compilations, and of
// methods.
const (
	codeBytes   = 8 << 20
	methodBytes = 2 << 20
	callerBytes = 8 << 20 // bytes of what methods can call: some 5,000 of them
)

// A Process is one guest. Its methods are called from one goroutine at a time.
type Process struct {
	memory    vmstructs.Reader
	codeCache codecache.Cache
	image     *Image
	bias      uint64
	epoch     func() uint32 // nil if unknown
	seen      func(method uint64) (vmruntime.SeenMethod, bool)
	schema    *schema
	version   version

	kinds   codecache.KindTable
	layout  Layout
	learned bool              // kinds has more than layout
	trap    uint64            // what C2's code calls to go on in the interpreter; 0 until it is known
	stubAt  map[uint64]string // names of stubs, by an address in them that is called

	versions versionTable
	nameless []codecache.Blob      // compilations that are yet to enter versions
	codes    *cache[uint32, *code] // by version
	methods  *cache[methodKey, *method]
	stubs    stubNames

	// What calls are made: see Profiles.
	callers    *cache[uint64, *calling] // by method
	dispatched *cache[dispatchKey, dispatchTarget]
	klasses    *cache[methodKey, klassName]
	decoder    *calldata.Decoder
	texts      *cache[uint32, text] // by version

	complete       bool // DebugNonSafepoints
	safepointsOnly bool // for tests: what would be known if it were off
	notes          []string

	objects objectTable
	cards   *vmruntime.Cards // nil until they are known

	virtualClass uint64                       // java.lang.VirtualThread, 0 if unknown
	ranVirtual   bool                         // it was found to be initialized
	virtualList  func() (*virtualList, error) // what looking for it gave; nil until then
}

// A schema is where the fields are that this package reads, in one process. See the table in
// jdks.go for what each JDK moved. It is the same in all processes of a build of libjvm, but it is
// kept by process: one that lies about itself must only harm its own profile.
type schema struct {
	cache   codecache.Schema
	blob    codecache.BlobSchema
	scopes  debuginfo.Schema
	method  methodSchema
	thread  threadSchema
	stubs   codecache.StubSchema
	flags   vmstructs.FlagSchema
	version versionSchema
	profile calldata.Schema
	object  objectSchema
	classes classListSchema
}

// newSchema looks up everything. The error names all that is missing.
func newSchema(s *vmstructs.Tables) (*schema, error) {
	r := &vmstructs.Resolver{Tables: s}
	schema := &schema{
		cache:   codecache.NewSchema(r),
		blob:    codecache.NewBlobSchema(r),
		scopes:  debuginfo.NewSchema(r),
		method:  newMethodSchema(r),
		thread:  newThreadSchema(r),
		stubs:   codecache.NewStubSchema(r),
		flags:   vmstructs.NewFlagSchema(r),
		version: newVersionSchema(r),
		profile: calldata.NewSchema(s),
		object:  newObjectSchema(s),
		classes: newClassListSchema(s),
	}
	return schema, r.Err()
}

// A methodKey identifies a method: classes that are unloaded may leave their addresses to others.
type methodKey struct {
	addr  uint64
	epoch uint32
	// walked: what it was in interpreted frames of that epoch. Otherwise it is what was read in it,
	// and its methodBody is to be compared with what stands there.
	walked bool
}

// Attach reads the VM's tables and the headers in its code cache. Compilations that are there then
// can be named when they are gone once Continue has been called until there is no more to do. The
// result is a *Process.
func (i *Image) Attach(guest vmruntime.Target) (vmruntime.Process, error) {
	p := &Process{
		image:   i,
		bias:    guest.Bias,
		epoch:   guest.Epoch,
		seen:    guest.Seen,
		codes:   newCache[uint32, *code](codeBytes),
		methods: newCache[methodKey, *method](methodBytes),

		callers:    newCache[uint64, *calling](callerBytes),
		dispatched: newCache[dispatchKey, dispatchTarget](dispatchBytes),
		klasses:    newCache[methodKey, klassName](klassBytes),
		texts:      newCache[uint32, text](textBytes),
		objects:    newObjectTable(),
	}
	p.memory.Mem = &vmstructs.Weave{Memory: guest.Memory}
	if err := p.attach(); err != nil {
		return nil, fmt.Errorf("attach to HotSpot: %w", err)
	}
	return p, nil
}

func (p *Process) attach() error {
	structs, err := vmstructs.ReadTables(p.memory, p.symbol)
	if err != nil {
		return err
	}
	if p.schema, err = newSchema(structs); err != nil {
		return err
	}
	if p.version, err = readVersion(p.memory, &p.schema.version); err != nil {
		return err
	}
	// The VM makes code heaps and the Java heap first, and the interpreter last. Until then there
	// may be some of the code heaps.
	if _, _, err := codecache.InterpreterCode(p.memory, &p.schema.stubs); err != nil {
		return err
	}
	p.codeCache.Memory, p.codeCache.Schema = &p.memory, &p.schema.cache
	if p.codeCache.Heaps, p.codeCache.Shift, err = codecache.ReadHeaps(p.memory, &p.schema.cache); err != nil {
		return err
	}
	if err := p.remember(); err != nil {
		return fmt.Errorf("code cache: %w", err)
	}
	if p.complete, err = vmstructs.ReadBool(p.memory, &p.schema.flags, "DebugNonSafepoints"); err != nil {
		p.note("The setting of DebugNonSafepoints is unknown (%v): "+
			"a leaf [inlined in M] is M or a method that was inlined in it.", err)
	} else if !p.complete {
		p.note("DebugNonSafepoints is off: the JVM records inlined methods for calls and safepoint polls only. " +
			"A leaf [inlined in M] is M or a method that was inlined in it. Start the JVM with " +
			"-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints to see which.")
	}
	if !p.schema.scopes.Known() {
		p.note("The format of this JVM's debug information is unknown: inlined methods are not shown.")
	}
	if !p.version.tested() {
		p.note("This agent is not tested with JDK %d.", p.version.jdk)
	}
	return p.buildLayout()
}

func (p *Process) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// symbol returns the address of a symbol of libjvm in this process.
func (p *Process) symbol(name string) (uint64, bool) {
	value, ok := p.image.symbols[name]
	return value + p.bias, ok
}

// remember walks the code cache, and leaves the compilations there for Continue to name.
func (p *Process) remember() error {
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
func (p *Process) Continue() (more bool, err error) {
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
func (p *Process) compiled(b *codecache.Blob) bool {
	kind := p.kinds.Lookup(b.Name)
	return (kind == codecache.KindNMethod || kind == codecache.KindNative) && p.version.live(b.State)
}

// learn takes down the kinds of blobs whose names are at these addresses.
func (p *Process) learn(names []uint64) error {
	news, err := p.kinds.Learn(p.memory, names)
	p.learned = p.learned || news
	return err
}

func (p *Process) methodReader() methodReader {
	return methodReader{Reader: p.memory, schema: &p.schema.method, bias: p.version.unsigned5Bias()}
}

// Describe names the VM and its version: "OpenJDK 64-Bit Server VM 17.0.15+6".
func (p *Process) Describe() string { return p.version.String() }

// Notes are what a reader of this guest's profile must know, one sentence each.
func (p *Process) Notes() []string { return p.notes }

// Forgotten is how many compilations were forgotten by name because there were too many.
func (p *Process) Forgotten() uint64 { return p.versions.dropped }

// Loaded remembers a compilation by what the VM announced. It reads nothing.
func (p *Process) Loaded(c vmruntime.CodeLoad) {
	clean := func(s string) string { return vmstructs.CleanText([]byte(s)) }
	p.versions.add(c.Version&codecache.VersionMask, namedCode{
		begin:      c.Begin,
		size:       c.Size,
		methodName: methodName{clean(c.Class), clean(c.Name), clean(c.Signature)},
	})
}

// Flag reads a command line flag of type bool.
func (p *Process) Flag(name string) (bool, error) {
	return vmstructs.ReadBool(p.memory, &p.schema.flags, name)
}

// Number reads a command line flag of type intx.
func (p *Process) Number(name string) (int64, error) {
	return vmstructs.ReadNumber(p.memory, &p.schema.flags, name)
}
