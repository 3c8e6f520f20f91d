package usdt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A guest is a process whose calls are sampled.
type guest struct {
	id     proc.Identity
	image  *image
	kernel bpf.USDTGuest // as passed to the kernel side
	failed int           // windows in a row that could not be opened
	silent bool          // it has been noted that it makes no calls
}

// starting is how long a process may take to map the library that has the probe.
const starting = 3 * time.Second

var errFull = fmt.Errorf("%d such processes are sampled already", bpf.MaxUSDTGuests)

// A sighting is the result of one look at a process.
type sighting struct {
	found bool // it runs an interpreter
	code  proc.Mapping
	openedBuild
}

// Look finds out whether a process runs an interpreter, and if so samples its calls where possible.
// It returns false without an error for other processes; vmruntime.ErrStarting says to look again a
// little later. A process must be looked at again after an exec.
func (e *Engine) Look(ctx context.Context, pid int) (bool, error) {
	id, err := e.opt.Proc.Identify(pid)
	if err != nil {
		return false, err
	}
	s, err := proc.Call(ctx, e.opt.Pool, pid, func() (sighting, error) { return e.examine(pid) })
	if err == nil && !s.found {
		return false, nil
	}
	if err == nil {
		if err = e.adopt(ctx, id, s); err == nil {
			return true, nil
		}
	}
	if errors.Is(err, errNoProbes) && id.Age() < starting {
		err = vmruntime.ErrStarting // the library may not be mapped yet
	}
	if !errors.Is(err, proc.ErrGone) && !errors.Is(err, vmruntime.ErrStarting) && ctx.Err() == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if errors.Is(err, errNoProbes) { // once for all processes of that file
			e.note("calls of some processes are not sampled: %v", err)
		} else {
			e.note("calls of process %d are not sampled: %v", pid, err)
		}
	}
	return false, fmt.Errorf("calls of process %d are not sampled: %w", pid, err)
}

// examine looks for an interpreter's code with the probe: its program, or a library. It runs on a
// worker of the pool.
func (e *Engine) examine(pid int) (s sighting, err error) {
	const enough = 8 // files that are named like interpreters: extensions are, too
	maps, err := e.opt.Proc.Maps(pid, isInterpreter)
	if err != nil {
		return s, err
	}
	for i := range maps[:min(len(maps), enough)] {
		o, readErr := openBuild(e.opt.Proc, pid, &maps[i], e.opt.CountRead, e.knows)
		if readErr != nil {
			if o.id != (fileID{}) && !errors.Is(readErr, unix.EIO) {
				e.refuse(o.id, readErr)
			}
			err = cmp.Or(err, fmt.Errorf("%s: %w", maps[i].Path, readErr))
			continue
		}
		if refused := e.refusal(o.id); refused != nil {
			err = cmp.Or(err, fmt.Errorf("%s: %w", maps[i].Path, refused))
			continue
		}
		return sighting{true, maps[i], o}, nil
	}
	return sighting{}, err
}

// knows reports whether a file need not be read again.
func (e *Engine) knows(id fileID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.images[id] != nil || e.refused[id] != nil
}

func (e *Engine) refusal(id fileID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused[id]
}

// refuse records that a file cannot be used.
func (e *Engine) refuse(id fileID, why error) {
	const enough = 64
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.refused) >= enough {
		clear(e.refused)
	}
	e.refused[id] = why
}

// adopt starts to sample a process.
func (e *Engine) adopt(ctx context.Context, id proc.Identity, s sighting) error {
	e.looking.Lock()
	defer e.looking.Unlock()
	im, err := e.image(s.openedBuild)
	if err != nil {
		return err
	}
	g := &guest{id: id, image: im, kernel: bpf.USDTGuest{StartTicks: id.Ticks()}}
	if languages[im.language].dialect == bpf.USDTPHP {
		bias, err := im.segments.Bias(s.code.Start, s.code.Offset)
		if err != nil {
			return err
		}
		g.kernel.Executing = bias + im.php.executorGlobals + currentExecuteData
		if err := im.php.passes(ctx, e.opt.Proc, e.opt.Pool, id, bias); err != nil {
			return err
		}
	}
	if err := e.opt.Proc.Check(id); err != nil {
		return err
	}
	return e.enter(g)
}

// image returns the image of a file; looking is held.
func (e *Engine) image(o openedBuild) (*image, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	im := e.images[o.id]
	switch {
	case e.closed || im != nil:
		if o.build != nil {
			o.file.Close()
		}
		if e.closed {
			return nil, errClosed
		}
		return im, nil
	case o.build == nil:
		return nil, proc.ErrGone // forgotten between two looks: the next look reads it again
	case int(e.cookies)+len(o.build.sites) > bpf.MaxUSDTProbes:
		o.file.Close()
		return nil, fmt.Errorf("more than %d builds of interpreters: restart the agent to forget the old ones",
			bpf.MaxUSDTProbes)
	}
	im, err := newImage(o, e.usdt, e.cookies)
	if err != nil {
		o.file.Close()
		return nil, err
	}
	e.images[o.id] = im
	e.cookies += uint32(len(im.sites))
	return im, nil
}

// enter puts a guest into the tables.
func (e *Engine) enter(g *guest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	pid := g.id.PID
	if before := e.guests[pid]; before != nil {
		e.forget(before)
	}
	if len(e.guests) >= bpf.MaxUSDTGuests {
		return errFull
	}
	if err := e.usdt.UsdtGuests.Put(uint32(pid), g.kernel); err != nil {
		return fmt.Errorf("register the process in the kernel: %w", err)
	}
	e.guests[pid] = g
	return nil
}

func (e *Engine) guest(pid int) *guest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.guests[pid]
}

// all returns a copy of the list of guests.
func (e *Engine) all() []*guest {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*guest
	for _, g := range e.guests {
		all = append(all, g)
	}
	return all
}

// forget takes a guest out of the tables; mu is held. Its window, if there is one, closes by
// itself.
func (e *Engine) forget(g *guest) {
	pid := g.id.PID
	if e.guests[pid] != g {
		return
	}
	e.retired.add(e.counters(g))
	delete(e.guests, pid)
	e.usdt.UsdtGuests.Delete(uint32(pid))
	e.usdt.UsdtClosed.Delete(uint32(pid))
}
