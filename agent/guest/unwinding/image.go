package unwinding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/unwind"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// maxFile bounds the files that are read: only parts of them are.
const maxFile = 4 << 30

// A fileKey distinguishes a file from others, and from itself before it was rewritten.
type fileKey struct{ dev, inode, size, modified uint64 }

// An image is the code of a process at one moment.
type image struct {
	identity proc.Identity
	layout   proc.Layout
	maps     proc.Maps
	keys     []fileKey // one for each of maps; zero if it maps no file, or one that cannot be looked at
}

var errChanged = errors.New("its mappings changed while they were read")

// read reads the code of a process.
func (t *Tables) read(ctx context.Context, pid int) (image, error) {
	root := t.config.Root
	img, err := proc.Call(ctx, t.config.Pool, pid, func() (img image, err error) {
		if img.identity, err = root.Identify(pid); err != nil {
			return img, err
		}
		if img.layout, err = root.Layout(pid); err != nil {
			return img, err
		}
		if img.maps, err = root.Maps(pid, proc.Executable); err != nil {
			return img, err
		}
		img.keys = make([]fileKey, len(img.maps))
		for i := range img.maps {
			if m := &img.maps[i]; m.IsFile() {
				if st, err := root.StatMapped(pid, m); err == nil {
					img.keys[i] = fileKey{st.Dev, st.Ino, uint64(st.Size), uint64(st.Mtim.Nano())}
				}
			}
		}
		after, err := root.Layout(pid)
		if err == nil && after != img.layout {
			err = errChanged
		}
		return img, err
	})
	proc.Repanic(err)
	return img, err
}

// mappings returns what the kernel side is to know of the code of a process: the mappings of files
// that have tables, and what was asked for. It reports whether something is new among them.
func (t *Tables) mappings(
	ctx context.Context, pid int, p *process, img image, want bpf.UnwindWant,
) (mappings []bpf.UnwindMapping, more bool) {
	wanted := func(m *proc.Mapping) bool {
		return m.Start <= want.Sampled && want.Sampled < m.Limit || m.Start <= want.Untabled && want.Untabled < m.Limit
	}
	now := map[uint64]mapped{}
	pieces := 0 // that there are more of with framed code apart
	for i := range img.maps {
		m, key := &img.maps[i], img.keys[i]
		f, known := p.mappings[m.Start]
		known = known && f.key == key && (f.table == nil || t.store.has(f.table))
		if !known {
			f = mapped{key, t.store.ofFile(key)}
			if f.table == nil && wanted(m) {
				var again bool
				if f.table, again = t.tableOf(ctx, pid, m, key); again {
					continue
				}
			} else if f.table == nil {
				continue
			}
			more = true
		}
		now[m.Start] = f
		one := bpf.UnwindMapping{Begin: m.Start, End: m.Limit, Table: bpf.NoUnwindTable}
		if f.table != nil {
			bias, err := f.table.segments.Bias(m.Start, m.Offset)
			if err != nil {
				continue // no code
			}
			one.Base, one.Table, one.Generation = bias+f.table.base, f.table.slot, f.table.generation
			t.store.use(one)
		}
		mappings = append(mappings, one)
		if f.table != nil {
			pieces += 2 * len(f.table.framed)
		}
	}
	p.mappings = now
	if len(mappings) > bpf.MaxUnwindMappings {
		t.count(LossMappings)
		// Code that gets no table can be left out: it is walked the same way.
		mappings = slices.DeleteFunc(mappings, func(m bpf.UnwindMapping) bool { return m.Table == bpf.NoUnwindTable })
		mappings = mappings[:min(len(mappings), bpf.MaxUnwindMappings)]
	}
	if len(mappings)+pieces <= bpf.MaxUnwindMappings {
		mappings = t.markFramed(mappings)
	}
	return mappings, more
}

// markFramed returns mappings in pieces, so that those are apart in which all calls are made with a
// frame pointer.
func (t *Tables) markFramed(mappings []bpf.UnwindMapping) (pieces []bpf.UnwindMapping) {
	for _, m := range mappings {
		if table := t.store.tableAt(m); table != nil {
			for _, r := range table.framed {
				begin, end := max(m.Base+uint64(r.From), m.Begin), min(m.Base+uint64(r.To), m.End)
				if begin >= end {
					continue
				}
				before, within := m, m
				before.End, within.Begin, within.End, within.Framed, m.Begin = begin, begin, end, 1, end
				if before.Begin < before.End {
					pieces = append(pieces, before)
				}
				pieces = append(pieces, within)
			}
		}
		if m.Begin < m.End {
			pieces = append(pieces, m)
		}
	}
	return pieces
}

// tableOf returns the table of a mapping, nil if it gets none. It reports whether to try again.
func (t *Tables) tableOf(ctx context.Context, pid int, m *proc.Mapping, key fileKey) (made *table, again bool) {
	if !m.IsFile() && m.Path != proc.VDSO || m.Write {
		return nil, false // code of a VM, or of a program that changes it
	}
	frames, err := t.load(ctx, pid, m)
	if err == nil {
		made, err = t.store.get(ctx, frames)
	}
	if err == nil {
		t.store.setFile(key, made)
		t.publish()
		return made, false
	}
	again = proc.HeldUp(err) || errors.Is(err, errFull)
	switch {
	case errors.Is(err, errFull):
		t.count(LossFull)
	case errors.Is(err, unwind.ErrNone), errors.Is(err, unwind.ErrMachine):
		t.count(LossNone)
		t.noteWithout(symbol.CleanName(m.Path))
	case errors.Is(err, unwind.ErrTooLarge), errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.E2BIG):
		t.count(LossTooLarge)
	case errors.Is(err, errKernel):
		t.count(LossKernel)
	default:
		t.count(LossUnreadable)
	}
	t.config.Log.Debug("no unwind table", "pid", pid, "file", m.Path, "err", err)
	return nil, again
}

// load reads what the table of a mapping is made of.
func (t *Tables) load(ctx context.Context, pid int, m *proc.Mapping) (*unwind.Frames, error) {
	if m.Path == proc.VDSO {
		f, err := elffile.Open(bytes.NewReader(t.vdso), int64(len(t.vdso)))
		if err != nil {
			return nil, err
		}
		return unwind.Load(f)
	}
	frames, err := proc.Call(ctx, t.config.Pool, pid, func() (*unwind.Frames, error) {
		file, err := t.config.Root.OpenMapped(pid, m, maxFile)
		if err != nil {
			return nil, fmt.Errorf("open: %w", err)
		}
		defer file.Close()
		f, err := elffile.OpenFile(file)
		if err != nil {
			return nil, err
		}
		return unwind.Load(f)
	})
	proc.Repanic(err)
	return frames, err
}
