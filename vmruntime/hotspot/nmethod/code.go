package nmethod

import (
	"cmp"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A code is one compilation of a method, with all that is needed to name any place in it: the
// guest's memory is not asked again.
type code struct {
	begin, end    uint64
	frameComplete int32 // bytes
	tier          vmruntime.Tier
	own           *methodinfo.Method   // what was compiled
	scopes        *debuginfo.Table     // nil for wrappers of native methods, and if this VM's cannot be read
	methods       []*methodinfo.Method // by scopes.Methods
	bias          uint32               // bias of UNSIGNED5 in line tables

	blob       codecache.Blob        // as it was when it was read
	method     uint64                // address of what was compiled
	tree       *vmruntime.InlineTree // nil until it is asked for
	introduced bool                  // who its methods are has been told
	last       placeAt               // see placeOf
}

// A placeAt is what is known of a sampled pc, or of a return address.
type placeAt struct {
	pc    uint64 // 0 if it is none
	exact bool
	place debuginfo.Place
}

// Bytes is about how much memory c holds. It shares the methods with others, but may be the last one
// that has their lines.
func (c *code) Bytes() int {
	n := 384
	if c.scopes != nil {
		n += 8*len(c.scopes.Positions) + 12*len(c.scopes.Scopes) + 16*len(c.scopes.Methods)
		for _, m := range c.methods {
			n += len(m.Lines)
		}
		n += 8 * len(c.scopes.Evidence)
		n += 8 * len(c.scopes.Positions) // a tree, if one is asked for later
	}
	return n
}

func (c *code) contains(pc uint64) bool { return pc >= c.begin && pc < c.end }

// maxInlinedMethods bounds the distinct methods of one compilation. The most that was seen were
// 250.
const maxInlinedMethods = 4096

// readCode reads the compilation that pc is in, if it is still that version, with methods as of
// then. ErrStale if another version is there now, or none; also if the code changed while it was
// read: then nothing that was read is used.
func (p *Codes) readCode(version uint32, pc uint64, at methodsAt) (*code, error) {
	d, err := p.draft(version, pc)
	if err != nil {
		return nil, err
	}
	methods, readErr := p.readMethods(d.addrs, at)
	if err := p.confirm(d); err != nil { // whatever else went wrong
		return nil, err
	}
	return d.complete(methods, readErr)
}

// A draft is a compilation whose methods are yet to be read.
type draft struct {
	code  *code
	pc    uint64
	addrs []uint64 // its methods: what was compiled, then scopes.Methods
	err   error    // its debug information cannot be decoded
}

// draft reads the compilation that pc is in, but for its methods. What was read is not to be used
// before it is confirmed.
func (p *Codes) draft(version uint32, pc uint64) (*draft, error) {
	addr, header, err := p.Cache.FindHeader(pc, p.headerSize())
	if err != nil {
		return nil, err
	}
	b, err := p.decodeHeader(addr, header, version)
	if err != nil {
		return nil, err
	}
	d := &draft{pc: pc, addrs: []uint64{b.Method}, code: &code{
		begin: b.Begin, end: b.End, frameComplete: b.FrameComplete, tier: b.Tier(), method: b.Method, blob: b,
		bias: p.Version.Unsigned5Bias(),
	}}
	if p.Kinds.Lookup(b.Name) != codecache.KindNMethod || !p.Schema.scopes.Known() {
		return d, nil
	}
	if d.code.scopes, d.err = p.scopes(b, header); d.err != nil {
		return d, nil
	}
	d.addrs = append(d.addrs, d.code.scopes.Methods...)
	if n := len(d.addrs); n > maxInlinedMethods {
		d.addrs, d.err = nil, fmt.Errorf("%d methods in one compilation: %w", n, vmruntime.ErrMalformed)
	}
	return d, nil
}

// scopes reads and decodes the debug information of b.
func (p *Codes) scopes(b codecache.Blob, header []byte) (*debuginfo.Table, error) {
	scopes, tables := vmstructs.PassingBatch(), vmstructs.PassingBatch()
	defer scopes.Free()
	defer tables.Free()
	raw, known, err := p.readScopes(b, header, scopes, tables)
	if err != nil {
		return nil, err
	}
	t, err := debuginfo.Decode(raw, p.Version.Unsigned5Bias())
	if err != nil {
		return nil, err
	}
	return t, p.weigh(t, b, known)
}

// confirm returns ErrStale if the code has changed since it was read.
func (p *Codes) confirm(d *draft) error {
	before := d.code.blob
	again, err := p.Cache.Header(before.Addr, d.pc, p.headerSize())
	if err != nil {
		return err
	}
	after, err := p.decodeHeader(before.Addr, again, before.Version())
	if err != nil {
		return err
	}
	if !after.Same(before) {
		return vmruntime.ErrStale
	}
	return nil
}

// complete returns the compilation with its methods, which are among those that were read unless
// that failed.
func (d *draft) complete(methods map[uint64]*methodinfo.Method, readErr error) (*code, error) {
	if err := cmp.Or(d.err, readErr); err != nil {
		return nil, err
	}
	c := d.code
	if c.own = methods[c.method]; c.own == nil {
		return nil, fmt.Errorf("method at %#x: %w", c.method, vmruntime.ErrMalformed)
	}
	if c.scopes == nil {
		return c, nil
	}
	c.methods = make([]*methodinfo.Method, len(c.scopes.Methods))
	for i, addr := range c.scopes.Methods {
		if c.methods[i] = methods[addr]; c.methods[i] == nil {
			return nil, fmt.Errorf("inlined method at %#x: %w", addr, vmruntime.ErrMalformed)
		}
	}
	return c, nil
}

// readHeader reads the header of the nmethod at addr. ErrStale if it is not that version, or not an
// nmethod.
func (p *Codes) readHeader(addr uint64, version uint32) ([]byte, codecache.Blob, error) {
	header, err := p.Memory.Bytes(addr, p.headerSize())
	if err != nil {
		return nil, codecache.Blob{}, err
	}
	b, err := p.decodeHeader(addr, header, version)
	return header, b, err
}

// headerSize is how many bytes of an nmethod have all that is read of its header.
func (p *Codes) headerSize() uint64 { return max(p.Schema.Blob.Header, p.Schema.scopes.Header()) }

// decodeHeader decodes the header of the nmethod at addr. ErrStale if it is not that version, or
// not an nmethod.
func (p *Codes) decodeHeader(addr uint64, header []byte, version uint32) (codecache.Blob, error) {
	b, err := p.Schema.Blob.Decode(addr, header)
	if err != nil {
		return codecache.Blob{}, err
	}
	if _, known := p.Kinds.Names[b.Name]; !known {
		if err := p.learn([]uint64{b.Name}); err != nil {
			return codecache.Blob{}, err
		}
	}
	if b.Version() != version || !p.Compiled(&b) {
		return codecache.Blob{}, vmruntime.ErrStale
	}
	return b, nil
}

// frames names the place at pc, innermost first. exact says that pc was sampled; otherwise it is a
// return address.
func (c *code) frames(pc uint64, exact bool) []vmruntime.Frame {
	at := c.placeOf(pc, exact)
	if at.Scope == debuginfo.NoScope {
		leaf := c.frame(c.own)
		if at.Located {
			leaf.Line = c.lineOf(c.own, 0)
		}
		leaf.Approximate = !at.Recorded && c.tier != vmruntime.TierNative && !c.own.Leaf
		return []vmruntime.Frame{leaf}
	}
	var frames []vmruntime.Frame
	for i := at.Scope; i != debuginfo.NoScope && len(frames) < debuginfo.MaxInlining; {
		s := c.scopes.Scopes[i]
		m := c.methods[s.Method]
		frame := c.frame(m)
		if at.Located || len(frames) > 0 {
			frame.BCI, frame.Line = int(s.BCI), c.lineOf(m, int(s.BCI))
		}
		frames = append(frames, frame)
		i = s.Sender
	}
	frames[0].Approximate = !at.Recorded && !c.methods[c.scopes.Scopes[at.Scope].Method].Leaf
	return frames
}

// Place identifies what is known of a place in a compilation that was read.
func (p *Codes) Place(site vmruntime.Site) (place uint64, ok bool) {
	if site.Kind != vmruntime.Compiled {
		return 0, false
	}
	c, ok := p.known(site)
	if !ok {
		return 0, false
	}
	at := c.placeOf(site.PC, site.Exact)
	place = uint64(uint32(at.Scope)) << 2
	if at.Located {
		place |= 2
	}
	if at.Recorded {
		place |= 1
	}
	return place, true
}

// placeOf returns what is known of pc. Its callers ask for the same place several times in a row.
func (c *code) placeOf(pc uint64, exact bool) debuginfo.Place {
	if c.last.pc != pc || c.last.exact != exact {
		c.last = placeAt{pc, exact, c.findPlace(pc, exact)}
	}
	return c.last.place
}

func (c *code) findPlace(pc uint64, exact bool) debuginfo.Place {
	if c.scopes == nil {
		return debuginfo.Place{Scope: debuginfo.NoScope}
	}
	offset := int32(pc - c.begin)
	own := debuginfo.Place{Scope: debuginfo.NoScope, Located: true, Recorded: true}
	if exact && offset < c.frameComplete {
		return own // the prologue belongs to the method itself
	}
	// HotSpot records the return addresses of calls that may stop at a safepoint. Calls of its
	// stubs, such as arraycopy and Math.cos, cannot: of those it records as little as of other
	// instructions.
	return c.scopes.At(offset)
}

// lineOf is the line of a bytecode index of a method. -1, before the first bytecode, counts as 0.
func (c *code) lineOf(m *methodinfo.Method, bci int) int {
	return debuginfo.LineOf(m.Lines, max(bci, 0), c.bias)
}

// frame is a frame of a method, somewhere in it.
func (c *code) frame(from *methodinfo.Method) vmruntime.Frame {
	return vmruntime.Frame{
		Function:  from.Function,
		Signature: from.Signature,
		File:      from.File,
		BCI:       -1,
		Tier:      c.tier,
	}
}
