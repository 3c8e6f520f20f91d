package guest

import (
	"errors"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Lines of Go programs are read from their files when an address is named. A process keeps its
// files open until it has ended and its last frames have names: a program that ran for a moment has
// lines, too, and no file system is in use for longer. More files than maxSources are closed when a
// worker leaves the process.
const (
	maxSources        = 256 // files of all processes
	maxProcessSources = 8   // more than plugins that a program loads
)

var errTooManySources = errors.New("a process maps too many Go files")

// nameLines returns the functions at an address of p in a Go program, innermost first; none if it
// is in another file, or cannot be read.
func (rs *Resolver) nameLines(
	p *Process, m *proc.Mapping, o *symbolize.Object, at symbol.Mapping, pc uint64,
) []symbol.Frame {
	if !o.HasLines() {
		return nil
	}
	if frames, ok := o.KnownLines(at, pc); ok {
		return frames
	}
	source := rs.source(p, m)
	if source == nil {
		return nil
	}
	frames, err := Call(rs, p, func() ([]symbol.Frame, error) { return o.Lines(source, at, pc) })
	rs.reads.count(err)
	p.work.heldUp = p.work.heldUp || proc.HeldUp(err)
	if err != nil {
		rs.log.Debug("no lines", "pid", p.PID, "file", m.Path, "err", err)
	}
	return frames
}

// source returns the file behind a mapping of p, nil if it cannot be opened.
func (rs *Resolver) source(p *Process, m *proc.Mapping) *os.File {
	if f, ok := p.work.sources[m.Start]; ok || p.Exited.Load() {
		return f
	}
	if p.work.sources == nil {
		p.work.sources = map[uint64]*os.File{}
	}
	if len(p.work.sources) >= maxProcessSources {
		rs.reads.count(errTooManySources)
		return nil
	}
	f, err := Call(rs, p, func() (*os.File, error) { return rs.root.OpenMapped(p.PID, m, maxExecutable) })
	rs.reads.count(err)
	if p.work.heldUp = p.work.heldUp || proc.HeldUp(err); err != nil {
		f = nil
	} else {
		rs.sources.Add(1)
	}
	p.work.sources[m.Start] = f
	return f
}

// closeSources closes the files of p if it has ended, or if there are too many. Those that could
// not be opened are tried again.
func (rs *Resolver) closeSources(p *Process) {
	all := p.Exited.Load() || rs.sources.Load() > maxSources
	for start, f := range p.work.sources {
		if f != nil && all {
			f.Close()
			rs.sources.Add(-1)
		}
		if f == nil || all {
			delete(p.work.sources, start)
		}
	}
}

// nameMaybeCaller names the caller of a function of Go that was sampled and has no frame, which the
// chain of frame pointers leaves out. It is no frame at all if the function has one.
func (rs *Resolver) nameMaybeCaller(p *Process, r Wanted, low uint32, distance int32) Name {
	if proc.Monotonic()-p.work.mapsRead > maxMapsInterval {
		rs.readMaps(p)
	}
	for i := range p.work.maps {
		m := &p.work.maps[i]
		pc := bpf.Sampled(low, m.Start)
		if pc >= m.Limit || !m.IsFile() {
			continue
		}
		o := rs.object(p, m)
		if !o.HasLines() {
			continue
		}
		source := rs.source(p, m)
		if source == nil {
			continue
		}
		at := symbol.Mapping{File: m.Path, Start: m.Start, Limit: m.Limit, Offset: m.Offset}
		has, err := Call(rs, p, func() (bool, error) {
			has, ok, err := o.HasFrame(source, at, pc)
			return has || !ok, err
		})
		rs.reads.count(err)
		if p.work.heldUp = p.work.heldUp || proc.HeldUp(err); err != nil || has {
			return Name{}
		}
		r.Frame = bpf.NativeFrame(pc + uint64(int64(distance)))
		r.Kind = RawReturn
		return rs.nameNative(p, r)
	}
	return Name{}
}
