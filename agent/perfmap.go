package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/retry"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/perfmap"
)

// A perfMap is the map that the VM of a process writes of its code, as far as it was read. The worker that has the process
// has it.
type perfMap struct {
	found bool
	names perfmap.Map
	bytes int64 // of names, as charged to the agent's bound

	look   retry.Backoff // of looking for it, and for what replaced it
	useful bool          // false once it was given up
	missed []wanted      // frames whose code it did not know
	news   bool          // it got lines since those were looked up
	memory *proc.Memory  // of the process, once somebody wants it
}

// Bounds on maps; package perfmap has those of one.
const (
	mapInterval  = time.Second // between two reads of one
	maxMapsBytes = 256 << 20   // memory of all maps together
	maxMissed    = 1 << 12     // frames that wait for a line
)

// lookForMap is when a process that has no map is looked at again, if it has new code without names.
var lookForMap = retry.Backoff{First: time.Second}

var errMapsFull = fmt.Errorf("maps of compiled code take more than %d bytes, of all processes together", int64(maxMapsBytes))

// jitMapping is where code is that only a map names. Which VM made it the map does not say.
var jitMapping = unique.Make(symbolize.Mapping{File: "[jit]"})

// nameJIT names code at pc, which is r's, by the map of p's VM. False if it has none, or if that does not know it.
func (ts *targets) nameJIT(p *targetProcess, pc uint64, r wanted) (name, bool) {
	ts.lookForMap(p)
	m := &p.work.perf
	if !m.useful {
		return name{}, false
	}
	e, ok := m.names.Find(pc)
	if !ok {
		if len(m.missed) < maxMissed {
			m.missed = append(m.missed, r)
		}
		return name{}, false
	}
	function := symbolize.CleanName(e.Name)
	s := symbolize.Intern(symbolize.Frame{Function: function, SystemName: function, Kind: symbolize.KindJIT, Mapping: jitMapping, Address: pc})
	return name{symbols: []symbolize.Symbol{s}, bcis: []int32{codeOffset(r.frame.PC() - e.Begin)}}, true
}

// codeOffset is where in its code a return address is; -1 if nobody has code that long.
func codeOffset(bytes uint64) int32 {
	if bytes > 1<<30 {
		return -1
	}
	return int32(bytes)
}

// hasVM tells whether names of p's code come from a VM's own tables: then its map is of no use.
func (p *targetProcess) hasVM() bool {
	return p.work.guest != nil || p.work.hopeless || findLibrary(p.work.maps) != nil
}

// lookForMap finds p's map, if it is time to look for it.
func (ts *targets) lookForMap(p *targetProcess) {
	m := &p.work.perf
	if m.look.First == 0 {
		m.look = lookForMap
	}
	if !m.found && !p.exited.Load() && !p.hasVM() && m.look.Due(proc.Monotonic()) {
		ts.readMap(p)
	}
}

// followMap reads what p's map got since the last time, and names what waited for it.
func (ts *targets) followMap(p *targetProcess) {
	switch m := &p.work.perf; {
	case !m.useful || p.exited.Load():
	case p.hasVM():
		ts.giveUpMap(p, nil)
	default:
		if p.code.Load().due(proc.Monotonic()) {
			ts.readMap(p)
		}
		if m.news {
			m.news = false
			ts.nameMissed(p)
		}
	}
}

// nameMissed names frames whose code the map did not know when they came.
func (ts *targets) nameMissed(p *targetProcess) {
	missed := p.work.perf.missed
	p.work.perf.missed = nil
	for _, r := range missed {
		n := ts.name(p, r)
		p.mu.Lock()
		if _, still := p.names[r.rawFrame]; still {
			p.names[r.rawFrame] = n
		}
		p.mu.Unlock()
	}
}

// readMap reads p's map on to its end, and tells the drainer.
func (ts *targets) readMap(p *targetProcess) {
	m := &p.work.perf
	if m.found && !m.useful {
		return // it was given up
	}
	defer ts.publish(p)
	for more := true; more; {
		from := m.names.Position() // as a call may outlast its deadline
		piece, err := callFor(ts, p, func() (perfmap.Piece, error) {
			return readMapPiece(ts.root, p.identity(), from)
		})
		if errors.Is(err, fs.ErrNotExist) {
			return // there is none, or none any more: what was in it is as right as before
		}
		more = piece.More
		if err == nil {
			err = ts.addPiece(p, piece)
			grown := m.names.Position() != from
			more = more && grown
			m.news = m.news || grown
		}
		ts.reads.count(err)
		switch {
		case err == nil, errors.Is(err, perfmap.ErrMalformed):
		case errors.Is(err, perfmap.ErrFull), errors.Is(err, proc.ErrTooLarge), errors.Is(err, errMapsFull), errors.Is(err, perfmap.ErrForeign):
			ts.giveUpMap(p, err)
			return
		default:
			ts.log.Debug("cannot read map of compiled code", "pid", p.pid, "err", err)
			return
		}
	}
}

// mappedCode is the code at pc that p's map names. p's worker has it.
func (p *targetProcess) mappedCode(pc uint64) (perfmap.Entry, bool) {
	return p.work.perf.names.Find(pc)
}

// mayBeJIT reports whether code at pc may be a JIT compiler's. p's worker has it.
func (p *targetProcess) mayBeJIT(pc uint64) bool { return mayBeJIT(p.work.maps.Find(pc)) }

// codeMemory is the memory of a process whose code a map names. The worker that has p calls it, and the memory is closed when
// the map is given up or p has ended.
func (ts *targets) codeMemory(p *targetProcess) (*proc.Memory, error) {
	m := &p.work.perf
	if !m.useful || p.exited.Load() {
		return nil, fmt.Errorf("process %d has no map of its code: %w", p.pid, proc.ErrGone)
	}
	if m.memory == nil {
		memory, err := proc.OpenMemory(ts.root, p.identity(), ts.pool)
		ts.reads.count(err)
		if err != nil {
			return nil, err
		}
		m.memory = memory
	}
	return m.memory, nil
}

// publish tells the drainer where the code is that the map names.
func (ts *targets) publish(p *targetProcess) {
	m := &p.work.perf
	if !m.useful {
		p.code.Store(nil)
		return
	}
	low, high := m.names.Bounds()
	p.code.Store(&jitCode{low: low, high: high, epoch: m.names.Epoch(), again: proc.Monotonic() + mapInterval})
}

// giveUpMap forgets p's map for good. If that is not because of a VM's own tables, err says why.
func (ts *targets) giveUpMap(p *targetProcess, err error) {
	if err != nil {
		ts.log.Debug("map of compiled code is not used", "pid", p.pid, "err", err)
		p.mu.Lock()
		p.notes = append(p.notes, fmt.Sprintf("compiled code of process %d has no names: %v", p.pid, err))
		p.mu.Unlock()
	}
	ts.releaseMap(p)
	p.work.perf.found = true // and not looked for any more
	ts.publish(p)
}

// releaseMap gives back what p's map holds.
func (ts *targets) releaseMap(p *targetProcess) {
	m := &p.work.perf
	ts.mapsBytes.Add(-m.bytes)
	if m.memory != nil {
		m.memory.Close()
	}
	m.names, m.bytes, m.missed, m.memory, m.useful = perfmap.Map{}, 0, nil, nil, false
}

// addPiece takes a piece of p's map.
func (ts *targets) addPiece(p *targetProcess, piece perfmap.Piece) error {
	m := &p.work.perf
	if !m.names.Continues(piece) && m.found && !m.look.Due(proc.Monotonic()) {
		m.names.Forget()
		return nil // who writes it anew all the time is read ever more rarely
	}
	m.found, m.useful = true, true
	added, err := m.names.Add(piece)
	if err != nil {
		return err
	}
	before := m.bytes
	m.bytes = m.names.Bytes()
	switch total := ts.mapsBytes.Add(m.bytes - before); {
	case total > maxMapsBytes:
		return errMapsFull
	case added.Malformed > 0:
		return fmt.Errorf("map of process %d: %d %w", p.pid, added.Malformed, perfmap.ErrMalformed)
	}
	return nil
}

// readMapPiece reads on in a process's map, in the process's own /tmp.
func readMapPiece(root proc.Root, id proc.Identity, from perfmap.Position) (piece perfmap.Piece, err error) {
	status, err := root.Status(id.PID)
	if err != nil {
		return piece, err
	}
	f, err := root.OpenFile(id.PID, perfmap.Path(status.InnermostPID()), perfmap.MaxBytes)
	if err != nil {
		return piece, err
	}
	defer f.Close()
	piece, err = perfmap.ReadPiece(f, status.UID, from)
	switch {
	case errors.Is(err, perfmap.ErrForeign):
		return piece, fmt.Errorf("%s of process %d: %w: %w", f.Name(), id.PID, err, proc.ErrDenied)
	case err != nil:
		return piece, fmt.Errorf("read %s of process %d: %w", f.Name(), id.PID, err)
	}
	return piece, root.Check(id)
}
