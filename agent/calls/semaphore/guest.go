package semaphore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A guest is a PHP process whose calls are sampled.
type guest struct {
	id      proc.Identity
	image   *image
	cell    cell         // for when there is no guard
	kernel  bpf.PHPGuest // what the kernel side was told
	dropped bool         // nobody writes to it any more
	silent  bool         // that it makes no calls was told
}

// Reasons why a PHP process is no guest.
var (
	errPlain = errors.New("it was started without USE_ZEND_DTRACE=1 in its environment: restart it with that")
	errPlace = errors.New("its semaphore is not where its file has it")
	errFull  = fmt.Errorf("there are %d PHP processes already", bpf.MaxPHPGuests)
)

// A sighting is what one look at a process found.
type sighting struct {
	mem  *os.File // its memory; nil if it does not run PHP
	code proc.Mapping
	maps proc.Maps // writable ones of the same file
	openedBuild
}

// Look finds out whether a process runs PHP, and samples its calls if that can be. It is false without an error for a
// process that does not run PHP; vmruntime.ErrStarting says to look again a little later. A semaphore that was left
// set by an agent that crashed is cleared.
func (e *Engine) Look(ctx context.Context, pid int) (bool, error) {
	id, err := e.opt.Proc.Identify(pid)
	if err != nil {
		return false, err
	}
	if g := e.guest(pid); g != nil && g.id.Same(id) && e.alive(ctx, g) {
		return true, nil
	}
	s, err := proc.Call(ctx, e.opt.Pool, pid, func() (sighting, error) { return e.examine(pid) })
	if err == nil && s.mem == nil {
		return false, nil
	}
	if err == nil {
		if err = e.adopt(ctx, id, s); err != nil {
			s.mem.Close()
		}
	}
	if err == nil {
		return true, nil
	}
	err = fmt.Errorf("calls of process %d are not sampled: %w", pid, err)
	if !errors.Is(err, proc.ErrGone) && !errors.Is(err, vmruntime.ErrStarting) && ctx.Err() == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.note("%v", err)
	}
	return false, err
}

// Discover looks at all processes and returns how many guests there are.
func (e *Engine) Discover(ctx context.Context) (int, error) {
	pids, err := e.opt.Proc.PIDs()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if _, err := e.Look(ctx, pid); err != nil && ctx.Err() != nil {
			return 0, err // others are in the notes
		}
	}
	return len(e.all()), nil
}

// examine reads what the process has mapped. It runs on a worker of the pool.
func (e *Engine) examine(pid int) (s sighting, err error) {
	code, err := e.opt.Proc.Maps(pid, IsPHP)
	if err != nil || len(code) == 0 {
		return s, err
	}
	defer func() {
		if err != nil && s.mem != nil {
			s.mem.Close()
		}
	}()
	// From here on it is about one address space: the maps are read after the descriptor was opened, and if the
	// process executes another program in between, the descriptor reads nothing any more.
	if s.mem, err = openMemory(e.opt.Proc, pid); err != nil {
		return s, err
	}
	s.code = code[0]
	s.maps, err = e.opt.Proc.Maps(pid, func(m *proc.Mapping) bool {
		return m.Inode == s.code.Inode && m.Dev == s.code.Dev
	})
	if err != nil {
		return s, err
	}
	if m := s.maps.Find(s.code.Start); m == nil || *m != s.code {
		return s, proc.ErrGone
	}
	s.openedBuild, err = openBuild(e.opt.Proc, pid, &s.code, e.knows)
	if err != nil && s.id != (fileID{}) && !errors.Is(err, unix.EIO) {
		e.refuse(s.id, err)
	}
	return s, err
}

// knows reports whether a file need not be read again.
func (e *Engine) knows(id fileID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.images[id] != nil || e.refused[id] != nil
}

// refuse remembers that a file cannot be used.
func (e *Engine) refuse(id fileID, why error) {
	const enough = 64
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.refused) >= enough {
		clear(e.refused)
	}
	e.refused[id] = why
}

// adopt makes a process a guest, which owns s.mem then.
func (e *Engine) adopt(ctx context.Context, id proc.Identity, s sighting) error {
	e.looking.Lock()
	defer e.looking.Unlock()
	im, err := e.image(s.openedBuild)
	if err != nil {
		return err
	}
	bias, err := im.segments.Bias(s.code.Start, s.code.Offset)
	if err != nil {
		return err
	}
	addr, err := im.semaphoreIn(s.maps, bias)
	if err != nil {
		return err
	}
	g := &guest{id: id, image: im, cell: cell{mem: s.mem, addr: int64(addr)}}
	g.kernel = bpf.PHPGuest{StartTicks: id.Ticks(), Executing: bias + im.executorGlobals + currentExecuteData}
	if err := e.opt.Pool.Do(ctx, id.PID, func() error { return e.prepare(g, bias) }); err != nil {
		return err
	}
	if err := e.opt.Proc.Check(id); err != nil {
		return err
	}
	if err := e.guard.give(verbAdd, id, addr, s.mem); err != nil {
		return err
	}
	if err := e.enter(g); err != nil {
		return errors.Join(err, e.guard.give(verbRemove, id, 0, nil))
	}
	return nil
}

// image returns the image of a file, which it attaches to if that is new; looking is held.
func (e *Engine) image(o openedBuild) (*image, error) {
	e.mu.Lock()
	im, refused, cookie, broken := e.images[o.id], e.refused[o.id], e.cookies, e.broken
	e.mu.Unlock()
	switch {
	case broken != nil || im != nil || refused != nil:
		if o.build != nil {
			o.file.Close()
		}
		return im, errors.Join(broken, refused)
	case int(cookie)+len(o.sites) > bpf.MaxPHPProbes:
		o.file.Close()
		return nil, fmt.Errorf("more than %d builds of PHP: restart the agent to forget the old ones", bpf.MaxPHPProbes)
	}
	im, err := attachImage(o, e.uprobes, e.php, cookie)
	if err != nil {
		return nil, err
	}
	e.log.Debug("attached to PHP", "file", o.file.Name(), "version", im.version.String())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.images[o.id] = im
	e.cookies += uint32(len(im.sites))
	return im, nil
}

// semaphoreIn returns the address of the semaphore in a process, if that is the byte of the file that the note means:
// in the process's own writable copy of it, so that nobody else sees what is written.
func (b *build) semaphoreIn(maps proc.Maps, bias uint64) (uint64, error) {
	addr := bias + b.semaphore
	m := maps.Find(addr)
	if m == nil || !m.Read || !m.Write || m.Shared || addr%2 != 0 || addr-m.Start+m.Offset != b.semaphoreOffset {
		return 0, errPlace
	}
	return addr, nil
}

// prepare checks that the process executes functions by way of the probe, and clears what was left in its semaphore.
// It runs on a worker of the pool.
func (e *Engine) prepare(g *guest, bias uint64) error {
	if variable := g.image.executeVariable; variable != 0 {
		var b [8]byte
		if err := transfer(g.cell.mem, b[:], int64(bias+variable), unix.Pread); err != nil {
			return fmt.Errorf("read zend_execute_ex: %w", err)
		}
		switch execute := binary.NativeEndian.Uint64(b[:]); {
		case execute == 0:
			return vmruntime.ErrStarting
		case g.image.executePlain != 0 && execute == bias+g.image.executePlain:
			return errPlain
		}
	}
	if tracer, err := tracerOf(e.opt.Proc, g.id.PID); err != nil || tracer != 0 {
		return errors.Join(err, tracedBy(tracer))
	}
	left, err := g.cell.recover()
	if left && err == nil {
		e.log.Warn("cleared a semaphore that was left set", "pid", g.id.PID)
	}
	return err
}

func tracedBy(tracer int) error {
	if tracer == 0 {
		return nil
	}
	return fmt.Errorf("process %d debugs it and may hold the semaphore", tracer)
}

// enter puts a guest into the tables; looking is held.
func (e *Engine) enter(g *guest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	pid := g.id.PID
	if before := e.guests[pid]; before != nil {
		e.forget(before)
	}
	if len(e.guests) >= bpf.MaxPHPGuests {
		return errFull
	}
	if err := e.php.PhpGuests.Put(uint32(pid), g.kernel); err != nil {
		return fmt.Errorf("tell the kernel side of a guest: %w", err)
	}
	e.guests[pid] = g
	return nil
}

func (e *Engine) guest(pid int) *guest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.guests[pid]
}

// all is a copy of the guests.
func (e *Engine) all() []*guest {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*guest
	for _, g := range e.guests {
		all = append(all, g)
	}
	return all
}

// forget takes a guest out of the tables; mu is held. The guard forgets it on its own account.
func (e *Engine) forget(g *guest) {
	pid := g.id.PID
	if e.guests[pid] != g {
		return
	}
	e.retired.add(e.counters(g))
	delete(e.guests, pid)
	e.php.PhpGuests.Delete(uint32(pid))
	g.cell.mem.Close()
}
