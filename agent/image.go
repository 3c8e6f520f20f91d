package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// An image is one libjvm. It is read, and its probes are attached, once for all processes that map it. When the last of
// these is gone its probes are taken away: until then they pin its file system.
type image struct {
	mu       sync.Mutex    // held while it is read, not while it is attached
	ended    chan struct{} // closed when the attempt to attach has ended; nil without one
	found    *imageFile    // what is to be attached
	failure  error         // of the last attempt
	settled  bool          // the rest has its final value
	img      vmruntime.Image
	segments elffile.Segments
	err      error    // why there is no img
	probes   error    // why code is not followed live, nil if it is
	lacks    []string // what of the events that are recorded this library does not report, one sentence each
	attached imageProbes
}

// imageProbes are the probes of one libjvm.
type imageProbes struct {
	code  *attach.Attached // nil if there are none
	plans []*attachedPlan
}

// maxLibrary bounds a library, in bytes; debug builds with symbols have 400 MB.
const maxLibrary = 1 << 30

// An openLibrary is a file that a process maps. Whoever opens it closes it.
type openLibrary struct {
	file *os.File
	key  symbolize.FileKey
}

// open opens the file behind one of p's mappings, in the pool: it may be in a file system of p's making.
func (gs *guests) open(p *process, m *proc.Mapping) (openLibrary, error) {
	a := gs.agent
	return callFor(a, p, func() (openLibrary, error) {
		f, err := a.opt.Proc.OpenMapped(p.pid, m, maxLibrary)
		if err != nil {
			return openLibrary{}, err
		}
		key, err := openKey(f)
		if err != nil {
			f.Close()
			return openLibrary{}, err
		}
		return openLibrary{f, key}, nil
	})
}

// image returns p's libjvm. An error says that it could not be looked at, for reasons that are p's; what is wrong with
// the library itself is in the image. The file is read in the pool. Its probes are attached in a time of their own, which may be
// long: the caller waits for attachWait at most, and gets errAttaching.
func (gs *guests) image(p *process, m *proc.Mapping) (*image, error) {
	lib, err := gs.open(p, m)
	if err != nil {
		return nil, err
	}
	defer lib.file.Close()
	im := gs.hold(p, lib.key)
	ended, err := gs.settle(p, im, m, lib)
	if err != nil {
		return nil, err
	}
	if !gs.await(ended) {
		return nil, errAttaching
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if !im.settled {
		proc.Repanic(im.failure)
		return nil, fmt.Errorf("attach probes: %w", im.failure)
	}
	return im, nil
}

// settle reads a library and begins to attach its probes, unless that was done, or is under way. It returns what is closed when
// that has ended.
func (gs *guests) settle(p *process, im *image, m *proc.Mapping, lib openLibrary) (ended <-chan struct{}, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	switch {
	case im.settled:
		return closed, nil
	case im.ended != nil:
		return im.ended, nil
	}
	if im.found == nil {
		found, err := callFor(gs.agent, p, func() (imageFile, error) {
			return gs.read(lib), nil
		})
		if err != nil {
			return nil, err
		}
		for _, lack := range found.lacks {
			gs.agent.log.Warn("events of JVMs are not recorded", "library", m.Path, "why", lack)
		}
		im.found = &found
		im.img, im.segments, im.err, im.probes, im.lacks = found.img, found.segments, found.err, found.noSites, found.lacks
	}
	if im.err != nil {
		im.settled = true
		return closed, nil
	}
	im.ended, err = gs.background(lib.file, func(f *os.File) {
		err := proc.Catch(func() error { return gs.attachImage(p, im, f) })
		im.mu.Lock()
		defer im.mu.Unlock()
		if im.failure = err; err != nil {
			im.ended = nil // the next one tries again
			return
		}
		im.settled, im.found = true, nil
		if im.probes != nil {
			gs.agent.log.Warn("code of JVMs is not followed live", "library", m.Path, "err", im.probes)
		}
	})
	return im.ended, err
}

// An imageFile is what was read of a libjvm.
type imageFile struct {
	img      vmruntime.Image
	segments elffile.Segments
	err      error // why there is no img
	sites    attach.Sites
	noSites  error // why there are none
	plans    []*attachedPlan
	lacks    []string
}

// read reads a library. It attaches nothing.
func (gs *guests) read(lib openLibrary) (found imageFile) {
	file, err := elffile.Open(lib.file, lib.key.Size)
	if err != nil {
		found.err = fmt.Errorf("read libjvm: %w", err)
		return found
	}
	found.segments = file.Segments()
	found.img, found.err = hotspot.Runtime{}.Image(file)
	if found.img == nil && found.err == nil {
		found.err = errNotHotSpot
	}
	if found.err != nil {
		return found
	}
	found.sites, found.noSites = codeSites(file)
	if e := gs.agent.events; e != nil {
		found.plans, found.lacks = e.find(file, lib.file)
	}
	return found
}

var errNotHotSpot = errors.New("its libjvm is not HotSpot's: there are no vmStructs in it")

// codeSites finds the probes with which a libjvm announces what happens to code.
func codeSites(lib *elffile.File) (attach.Sites, error) {
	probes, err := lib.Probes()
	if err != nil {
		return attach.Sites{}, fmt.Errorf("read its probes: %w", err)
	}
	sites, err := probeSites(probes)
	if err != nil {
		return attach.Sites{}, err
	}
	if len(sites.Load) == 0 || len(sites.CodeUnload) == 0 || len(sites.ClassUnload) == 0 {
		return attach.Sites{}, errors.New("this libjvm was built without USDT probes")
	}
	return sites, nil
}

// attachImage attaches what was found in an image's file. An error says that it may succeed later.
func (gs *guests) attachImage(p *process, im *image, f *os.File) error {
	type outcome struct {
		imageProbes
		code  error // why code is not followed live
		lacks []string
	}
	e, found := gs.agent.events, im.found
	undo := func(o outcome) { gs.detach(context.Background(), &o.imageProbes) }
	out, err := inTime(gs.alive, gs.attaching, p.pid, func() (o outcome, err error) {
		if found.noSites == nil {
			o.imageProbes.code, o.code = gs.probes.Attach(f, found.sites)
		}
		if e != nil {
			o.plans, o.lacks = e.attach(found.plans, f)
		}
		return o, nil
	}, undo)
	if err != nil {
		return err
	}
	if errors.Is(out.code, unix.EMFILE) || errors.Is(out.code, unix.ENFILE) {
		undo(out)
		return out.code
	}
	im.mu.Lock()
	im.probes = errors.Join(im.probes, out.code)
	im.lacks = append(im.lacks, out.lacks...)
	im.mu.Unlock()
	if e != nil {
		e.adopt(out.plans)
	}
	gs.keeping.Lock()
	defer gs.keeping.Unlock()
	im.attached = out.imageProbes
	return nil
}

// inTime runs fn in a pool until ctx ends. What fn returns too late is undone.
func inTime[T any](ctx context.Context, pool *proc.Pool, pid int, fn func() (T, error), undo func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	err := pool.Do(ctx, pid, func() error {
		defer close(done)
		value, err := fn()
		done <- outcome{value, err}
		return err
	})
	if err == nil {
		return (<-done).value, nil
	}
	if errors.Is(err, proc.ErrTimeout) || ctx.Err() != nil {
		go func() {
			if late, ok := <-done; ok && late.err == nil {
				undo(late.value)
			}
		}()
	}
	var none T
	return none, err
}
