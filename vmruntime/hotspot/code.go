package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A code is one compilation of a method, with all that is needed to name any place in it: the guest's memory is not
// asked again.
type code struct {
	begin, end    uint64
	frameComplete int32 // bytes
	tier          vmruntime.Tier
	own           *source     // what was compiled
	ownLine       int         // of its first bytecode
	scopes        *scopeTable // nil for wrappers of native methods, and if this VM's cannot be read
	sources       []*source   // by scopeTable.methods
	complete      bool        // positions were recorded for all instructions: DebugNonSafepoints
}

// bytes is about how much memory c holds, without the methods, which it shares.
func (c *code) bytes() int {
	n := 256
	if c.scopes != nil {
		n += 8*len(c.scopes.positions) + 16*len(c.scopes.scopes) + 16*len(c.scopes.methods)
	}
	return n
}

func (c *code) contains(pc uint64) bool { return pc >= c.begin && pc < c.end }

// maxInlinedMethods bounds the distinct methods of one compilation. The most that was seen were 250.
const maxInlinedMethods = 4096

// A codeReader reads compilations.
type codeReader struct {
	codeCache
	blobs   *blobSchema
	scopes  *scopeSchema
	version version
	kinds   *kindTable
	methods func(addrs []uint64) (map[uint64]*method, error)
}

// read reads the compilation that pc is in, if it is still that version. ErrStale if another one is there now, or
// none; also if it changed while it was read: then nothing that was read is used.
func (r *codeReader) read(version uint32, pc uint64) (*code, error) {
	addr, err := r.find(pc)
	if err != nil {
		return nil, err
	}
	header, before, err := r.header(addr, version)
	if err != nil {
		return nil, err
	}
	c, decodeErr := r.decode(header, before)
	// Whatever went wrong: if the code has changed, that is the reason.
	if again, err := r.find(pc); err != nil {
		return nil, err
	} else if again != addr {
		return nil, vmruntime.ErrStale
	}
	if _, after, err := r.header(addr, version); err != nil {
		return nil, err
	} else if after != before {
		return nil, vmruntime.ErrStale
	}
	if decodeErr != nil {
		return nil, decodeErr
	}
	return c, nil
}

// header reads the header of the nmethod at addr. ErrStale if it is not that version, or not an nmethod.
func (r *codeReader) header(addr uint64, version uint32) ([]byte, blob, error) {
	header, err := r.bytes(addr, max(r.blobs.header, r.scopes.header()))
	if err != nil {
		return nil, blob{}, err
	}
	b, err := r.blobs.decodeBlob(addr, header)
	if err != nil {
		return nil, blob{}, err
	}
	if _, err := r.kinds.learn(r.target, []uint64{b.name}); err != nil {
		return nil, blob{}, err
	}
	kind := r.kinds.of(b.name)
	if kind != kindNMethod && kind != kindNative || b.version() != version || !r.version.live(b.state) {
		return nil, blob{}, vmruntime.ErrStale
	}
	// A method that was made not entrant in the meantime is the same code. Its state must not tell it apart.
	b.state = 0
	return header, b, nil
}

func (r *codeReader) decode(header []byte, b blob) (*code, error) {
	c := &code{begin: b.begin, end: b.end, frameComplete: b.frameComplete, tier: b.tier()}
	addrs := []uint64{b.method}
	if r.kinds.of(b.name) == kindNMethod && r.scopes.known() {
		raw, err := readScopes(r.target, r.scopes, b.addr, header)
		if err != nil {
			return nil, err
		}
		if c.scopes, err = decodeScopes(raw, r.version.unsigned5Bias()); err != nil {
			return nil, err
		}
		addrs = append(addrs, c.scopes.methods...)
	}
	if len(addrs) > maxInlinedMethods {
		return nil, fmt.Errorf("%d methods in one compilation: %w", len(addrs), vmruntime.ErrMalformed)
	}
	methods, err := r.methods(addrs)
	if err != nil {
		return nil, err
	}
	own := methods[b.method]
	if own == nil {
		return nil, fmt.Errorf("method at %#x: %w", b.method, vmruntime.ErrMalformed)
	}
	c.own, c.ownLine = own.source, lineOf(own.lines, 0, r.version.unsigned5Bias())
	return c, c.resolve(methods, r.version.unsigned5Bias())
}

// resolve fills in what comes from the inlined methods: names and lines.
func (c *code) resolve(methods map[uint64]*method, bias uint32) error {
	if c.scopes == nil {
		return nil
	}
	lines := make([][]byte, len(c.scopes.methods))
	c.sources = make([]*source, len(c.scopes.methods))
	for i, addr := range c.scopes.methods {
		m := methods[addr]
		if m == nil {
			return fmt.Errorf("inlined method at %#x: %w", addr, vmruntime.ErrMalformed)
		}
		c.sources[i], lines[i] = m.source, m.lines
	}
	for i := range c.scopes.scopes {
		s := &c.scopes.scopes[i]
		s.line = int32(lineOf(lines[s.method], max(int(s.bci), 0), bias)) // -1, before the first bytecode, counts as 0
	}
	return nil
}
