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
	mu       sync.Mutex // held while it is read and attached
	settled  bool       // the rest has its final value
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
// the library itself is in the image. The file is read in the pool. Its probes are attached in a time of their own: that
// is work of the kernel, and says nothing about p.
func (gs *guests) image(p *process, m *proc.Mapping) (*image, error) {
	lib, err := gs.open(p, m)
	if err != nil {
		return nil, err
	}
	defer lib.file.Close()
	im := gs.hold(p, lib.key)
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.settled {
		return im, nil
	}
	found, err := callFor(gs.agent, p, func() (imageFile, error) {
		return gs.read(lib), nil
	})
	if err != nil {
		return nil, err
	}
	im.img, im.segments, im.err, im.probes, im.lacks = found.img, found.segments, found.err, found.noSites, found.lacks
	for _, lack := range found.lacks {
		gs.agent.log.Warn("events of JVMs are not recorded", "library", m.Path, "why", lack)
	}
	if im.err == nil {
		if err := gs.attachImage(p, im, found, lib.file); err != nil {
			return nil, fmt.Errorf("attach probes: %w", err)
		}
	}
	if im.probes != nil {
		gs.agent.log.Warn("code of JVMs is not followed live", "library", m.Path, "err", im.probes)
	}
	im.settled = true
	return im, nil
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

// attachImage attaches what was found in an image's file; im.mu is held. An error says that it may succeed later.
func (gs *guests) attachImage(p *process, im *image, found imageFile, f *os.File) error {
	type outcome struct {
		imageProbes
		code  error // why code is not followed live
		lacks []string
	}
	e := gs.agent.events
	undo := func(o outcome) { gs.detach(context.Background(), &o.imageProbes) }
	out, err := inTime(gs.attaching, p.pid, func() (o outcome, err error) {
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
	im.probes = errors.Join(im.probes, out.code)
	im.lacks = append(im.lacks, out.lacks...)
	if e != nil {
		e.adopt(out.plans)
	}
	gs.keeping.Lock()
	defer gs.keeping.Unlock()
	im.attached = out.imageProbes
	return nil
}

// inTime runs fn in a pool. What fn returns too late is undone.
func inTime[T any](pool *proc.Pool, pid int, fn func() (T, error), undo func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	err := pool.Do(context.Background(), pid, func() error {
		value, err := fn()
		done <- outcome{value, err}
		return err
	})
	if errors.Is(err, proc.ErrTimeout) {
		go func() {
			if late := <-done; late.err == nil {
				undo(late.value)
			}
		}()
	}
	proc.Repanic(err)
	if err != nil {
		var none T
		return none, err
	}
	return (<-done).value, nil
}
