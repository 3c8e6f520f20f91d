package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// An image is one libjvm. It is read, and its probes are attached, once for all processes that map it.
type image struct {
	once     sync.Once
	settled  bool // guarded by guests.mu: the rest has its final value
	img      vmruntime.Image
	segments elffile.Segments
	err      error    // why there is no img
	probes   error    // why code is not followed live, nil if it is
	events   []string // what of the events that are recorded this library does not tell, one sentence each
}

// Bounds on libraries.
const (
	maxLibrary = 1 << 30 // bytes; debug builds with symbols have 400 MB
	// maxImages: from so many on, those without probes are forgotten when a new one comes. Those with probes are
	// bounded by bpf.MaxProbeSites.
	maxImages = 64
)

// image returns p's libjvm. An error says that it could not be looked at, for reasons that are p's; what is wrong with
// the library itself is in the image. All of it happens in the pool, as the file may be in a file system of p's making.
func (gs *guests) image(p *process, lib *proc.Mapping) (*image, error) {
	a := gs.agent
	return callFor(a, p, func() (*image, error) {
		f, err := a.opt.Proc.OpenMapped(p.pid, lib, maxLibrary)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		key, err := openKey(f)
		if err != nil {
			return nil, err
		}
		im := gs.imageOf(key)
		im.once.Do(func() {
			whole := false
			defer func() {
				gs.mu.Lock()
				defer gs.mu.Unlock()
				if !whole { // it panicked
					im.err = errNotRead
				}
				im.settled = true
			}()
			gs.read(im, f, key.Size)
			whole = true
		})
		return im, nil
	})
}

// imageOf returns the image of the library with that key, read or not.
func (gs *guests) imageOf(key symbolize.FileKey) *image {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if im := gs.images[key]; im != nil {
		return im
	}
	if len(gs.images) >= maxImages {
		maps.DeleteFunc(gs.images, func(_ symbolize.FileKey, im *image) bool {
			return im.settled && (im.err != nil || im.probes != nil)
		})
	}
	im := &image{}
	gs.images[key] = im
	return im
}

func (gs *guests) read(im *image, f *os.File, size int64) {
	lib, err := elffile.Open(f, size)
	if err != nil {
		im.err = fmt.Errorf("read libjvm: %w", err)
		return
	}
	im.segments = lib.Segments()
	im.img, im.err = hotspot.Runtime{}.Image(lib)
	if im.img == nil && im.err == nil {
		im.err = errNotHotSpot
	}
	if im.err != nil {
		return
	}
	if im.probes = gs.attachProbes(lib, f); im.probes != nil {
		gs.agent.log.Warn("code of JVMs is not followed live", "library", f.Name(), "err", im.probes)
	}
	if e := gs.agent.events; e != nil {
		gs.probing.Lock()
		defer gs.probing.Unlock()
		im.events = e.attach(lib, f)
	}
}

// errNotRead is for processes whose library another one's worker failed to read.
var errNotRead = errors.New("the agent failed to read its libjvm: see the agent's log")

var errNotHotSpot = errors.New("its libjvm is not HotSpot's: there are no vmStructs in it")

func (gs *guests) attachProbes(lib *elffile.File, f *os.File) error {
	probes, err := lib.Probes()
	if err != nil {
		return fmt.Errorf("read its probes: %w", err)
	}
	sites, err := probeSites(probes)
	if err != nil {
		return err
	}
	if len(sites.Load) == 0 || len(sites.CodeUnload) == 0 || len(sites.ClassUnload) == 0 {
		return errors.New("this libjvm was built without USDT probes")
	}
	gs.probing.Lock()
	defer gs.probing.Unlock()
	return gs.probes.Attach(f, sites)
}
