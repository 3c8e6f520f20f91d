package unwind

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Limits on what is read of one file.
const (
	maxFrameBytes = 32 << 20 // of .eh_frame; node has 3.5 MB, and Chromium some 20 MB
	maxCIEs       = 1 << 14  // glibc has 8
	maxRows       = 2 << 20  // MaxRows
	maxSteps      = 32 << 20 // instructions; node has 2 million
	maxStates     = 64       // that are remembered; compilers nest one deep
	stepsPerLook  = 1 << 14  // instructions from one look at the context to the next
)

// MaxRows bounds the rows of a table.
const MaxRows = maxRows

// What Build may fail with, besides errors of reading the file and of the context. All but
// ErrTooLarge say that the file has no unwind information of use.
var (
	ErrNone        = errors.New("no call frame information")
	ErrMachine     = errors.New("only x86-64 code has unwind tables")
	ErrTooLarge    = elffile.ErrTooLarge
	errMalformed   = errors.New("malformed frame description")
	errUnsupported = errors.New("frame description in a form that is not read")
)

// Frames are what a table is made of, read from a file: up to 32 MB. The file is not needed any more.
type Frames struct {
	segments elffile.Segments
	addr     uint64
	data     []byte
}

// Load reads the call frame information of a file.
func Load(f *elffile.File) (*Frames, error) {
	if f.Machine() != elf.EM_X86_64 {
		return nil, ErrMachine
	}
	addr, size, err := find(f)
	if err != nil {
		return nil, err
	}
	if size > maxFrameBytes {
		return nil, fmt.Errorf(".eh_frame of %d bytes: %w", size, ErrTooLarge)
	}
	fr := &Frames{segments: f.Segments(), addr: addr, data: make([]byte, size)}
	if err := f.ReadLoaded(fr.data, addr); err != nil {
		return nil, fmt.Errorf("read .eh_frame: %w", err)
	}
	return fr, nil
}

// A Sum tells the content of Frames apart from all others, in this process.
type Sum [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Sum returns the sum of what a table depends on. A file's own build id would not do: whoever makes a
// file can give it that of another one, and tables are shared.
func (fr *Frames) Sum() (sum Sum) {
	for i := range sum {
		var h maphash.Hash
		h.SetSeed(seeds[i])
		maphash.WriteComparable(&h, fr.addr)
		for _, p := range fr.segments {
			maphash.WriteComparable(&h, p)
		}
		h.Write(fr.data)
		sum[i] = h.Sum64()
	}
	return sum
}

// Segments are the program headers of the file.
func (fr *Frames) Segments() elffile.Segments { return fr.segments }

// Build makes the table of a file: Load and Table.
func Build(ctx context.Context, f *elffile.File) (*Table, error) {
	fr, err := Load(f)
	if err != nil {
		return nil, err
	}
	return fr.Table(ctx)
}

// Table makes the table. It needs up to 24 bytes for each frame description and 16 for each row. The
// context ends it.
func (fr *Frames) Table(ctx context.Context) (*Table, error) {
	b := builder{ctx: ctx, segments: fr.segments, cies: map[int]*cie{}}
	if !b.findBase() {
		return nil, fmt.Errorf("no code: %w", ErrNone)
	}
	return b.build(fr.data, fr.addr)
}

// find returns where .eh_frame is. A file without section headers has a pointer to it at the begin of
// .eh_frame_hdr, and it ends with its segment at the latest.
func find(f *elffile.File) (addr, size uint64, err error) {
	if s, err := f.Section(".eh_frame"); err == nil && s.Size > 0 {
		return s.Address, s.Size, nil
	}
	for _, p := range f.Segments() {
		if elf.ProgType(p.Type) != elf.PT_GNU_EH_FRAME {
			continue
		}
		var header [8]byte
		if err := f.ReadLoaded(header[:], p.Vaddr); err != nil {
			return 0, 0, fmt.Errorf("read .eh_frame_hdr: %w", err)
		}
		r := reader{data: header[:], pos: 4, base: p.Vaddr}
		addr, err := r.pointer(header[1])
		if err != nil || header[0] != 1 {
			return 0, 0, fmt.Errorf(".eh_frame_hdr: %w", errUnsupported)
		}
		for _, p := range f.Segments() {
			if elf.ProgType(p.Type) == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
				return addr, p.Filesz - (addr - p.Vaddr), nil
			}
		}
	}
	return 0, 0, ErrNone
}

// A builder reads one .eh_frame.
type builder struct {
	ctx      context.Context
	segments elffile.Segments
	base     uint64
	cies     map[int]*cie // by position; nil for one that cannot be read
	spans    []span
	rows     []Row
	steps    int
	looked   int // steps at the last look at the context
}

// findBase sets base to where the first code is.
func (b *builder) findBase() (ok bool) {
	for _, p := range b.segments {
		if isCode(&p) && (!ok || p.Vaddr < b.base) {
			b.base, ok = p.Vaddr, true
		}
	}
	return ok
}

func isCode(p *elf.Prog64) bool {
	return elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0
}

// inCode reports whether a segment has all of this code.
func (b *builder) inCode(start, size uint64) bool {
	for i := range b.segments {
		if p := &b.segments[i]; isCode(p) && start >= p.Vaddr && start-p.Vaddr < p.Memsz &&
			size <= p.Memsz-(start-p.Vaddr) {
			return true
		}
	}
	return false
}

// build makes the table of an .eh_frame that is loaded at addr.
func (b *builder) build(data []byte, addr uint64) (*Table, error) {
	// What compilers write, about, so that neither has to grow.
	const bytesPerFunction, bytesPerRow = 40, 16
	b.spans, b.rows = make([]span, 0, len(data)/bytesPerFunction), make([]Row, 0, len(data)/bytesPerRow)
	t := &Table{Base: b.base}
	for pos := 0; ; {
		r := reader{data: data, pos: pos, base: addr}
		length := r.uint(4)
		if r.bad || length == 0 || length > uint64(len(data)-r.pos) {
			break // the end, or what no reader understands: a length of 64 bits, or of more than there is
		}
		pos = r.pos + int(length)
		r.data = data[:pos]
		at := r.pos
		back := r.uint(4)
		if r.bad || back == 0 { // a CIE is read when a frame description refers to it
			continue
		}
		t.Functions++
		switch err := b.addFunction(&r, at-int(back)); {
		case errors.Is(err, errMalformed), errors.Is(err, errUnsupported):
			t.Dropped++
		case err != nil:
			return nil, err
		}
	}
	t.Rows = merge(b.spans, b.rows)
	if len(t.Rows) > maxRows {
		return nil, fmt.Errorf("%d rows: %w", len(t.Rows), ErrTooLarge)
	}
	for _, r := range t.Rows {
		if r.Rule.Kind() == Unsupported {
			t.Unsupported++
		}
	}
	if len(t.Rows) == 0 {
		return nil, ErrNone
	}
	return t, nil
}

// addFunction adds the rows of one frame description, which r has read up to the pointer to its CIE.
// Errors other than errMalformed and errUnsupported end the build.
func (b *builder) addFunction(r *reader, ciePos int) error {
	c, err := b.cie(r.data, r.base, ciePos)
	if err != nil {
		return err
	}
	start, err := r.pointer(c.encoding)
	if err != nil {
		return err
	}
	size, err := r.pointer(c.encoding & 0x0f)
	if err != nil {
		return err
	}
	if c.augmented {
		r.skip(r.uleb())
	}
	switch {
	case r.bad || size == 0:
		return errMalformed
	case !b.inCode(start, size) || start-b.base > maxOffset || size > maxOffset-(start-b.base):
		return errMalformed
	}
	s := span{start: start - b.base, end: start - b.base + size, first: uint32(len(b.rows))}
	m := machine{cie: c, state: c.initial, first: c.initial, loc: s.start, builder: b, emit: true}
	if err := m.run(r, s.end); err != nil {
		b.rows = b.rows[:s.first]
		return err
	}
	m.row()
	s.rows = uint32(len(b.rows)) - s.first
	b.spans = append(b.spans, s)
	return nil
}

// step counts an instruction.
func (b *builder) step() error {
	b.steps++
	if b.steps > maxSteps || len(b.rows) >= 2*maxRows {
		return fmt.Errorf("%d call frame instructions, %d rows: %w", b.steps, len(b.rows), ErrTooLarge)
	}
	if b.steps-b.looked >= stepsPerLook {
		b.looked = b.steps
		return b.ctx.Err()
	}
	return nil
}
