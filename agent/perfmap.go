package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
	"unique"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A perfMap is the map that the VM of a process writes of its code, as far as it was read. The worker that has the process
// has it.
type perfMap struct {
	found  bool
	names  symbolize.PerfMap
	file   fileID
	offset int64 // of what was not read yet
	bytes  int64 // of names, as charged to the agent's bound
	epoch  uint32

	look   backoff      // of looking for it, and for what replaced it
	useful bool         // false once it was given up
	missed []wanted     // frames whose code it did not know
	news   bool         // it got lines since those were looked up
	memory *proc.Memory // of the process, once somebody wants it
}

// A fileID tells a file from those that have its name later.
type fileID struct{ device, inode uint64 }

// Bounds on maps; those of one are symbolize's.
const (
	mapInterval  = time.Second // between two reads of one
	maxMapPiece  = 1 << 20     // bytes that are read at once
	maxMapsBytes = 256 << 20   // memory of all maps together
	maxMissed    = 1 << 12     // frames that wait for a line
)

// lookForMap is when a process that has no map is looked at again, if it has new code without names.
var lookForMap = backoff{first: time.Second}

var (
	errMapsFull   = fmt.Errorf("maps of compiled code take more than %d bytes, of all processes together", int64(maxMapsBytes))
	errForeignMap = fmt.Errorf("its owner is neither the process's user nor root: %w", proc.ErrDenied)
)

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
	s := symbolize.Intern(symbolize.Frame{Function: e.Name, SystemName: e.Name, Kind: symbolize.KindJIT, Mapping: jitMapping, Address: pc})
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
	if m.look.first == 0 {
		m.look = lookForMap
	}
	if !m.found && !p.exited.Load() && !p.hasVM() && m.look.due(monotonic()) {
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
		if p.code.Load().due(monotonic()) {
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
		file, offset := m.file, m.offset // as a call may outlast its deadline
		piece, err := callFor(ts, p, func() (mapPiece, error) {
			return openMapPiece(ts.root, p.identity(), file, offset)
		})
		if errors.Is(err, fs.ErrNotExist) {
			return // there is none, or none any more: what was in it is as right as before
		}
		more = piece.more
		if err == nil {
			err = ts.addPiece(p, piece)
			grown := m.file != file || m.offset != offset
			more = more && grown
			m.news = m.news || grown
		}
		ts.reads.count(err)
		switch {
		case err == nil, errors.Is(err, errMalformedMap):
		case errors.Is(err, symbolize.ErrPerfMapFull), errors.Is(err, proc.ErrTooLarge), errors.Is(err, errMapsFull), errors.Is(err, errForeignMap):
			ts.giveUpMap(p, err)
			return
		default:
			ts.log.Debug("cannot read map of compiled code", "pid", p.pid, "err", err)
			return
		}
	}
}

// publish tells the drainer where the code is that the map names.
func (ts *targets) publish(p *targetProcess) {
	m := &p.work.perf
	if !m.useful {
		p.code.Store(nil)
		return
	}
	low, high := m.names.Bounds()
	p.code.Store(&jitCode{low: low, high: high, epoch: m.epoch, again: monotonic() + mapInterval})
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
	m.names, m.bytes, m.missed, m.memory, m.useful = symbolize.PerfMap{}, 0, nil, nil, false
}

// errMalformedMap: lines are left out; the others are used.
var errMalformedMap = fmt.Errorf("lines that are not START SIZE name: %w", proc.ErrMalformed)

// addPiece takes a piece of p's map.
func (ts *targets) addPiece(p *targetProcess, piece mapPiece) error {
	m := &p.work.perf
	if piece.file != m.file || piece.begin != m.offset {
		m.names = symbolize.PerfMap{} // nothing vouches for what it said
		m.epoch++
		if m.found && !m.look.due(monotonic()) {
			return nil // who writes it anew all the time is read ever more rarely
		}
		m.file, m.offset = piece.file, 0
	}
	m.found, m.useful = true, true
	added, err := m.names.Append(piece.text, len(piece.text) == maxMapPiece)
	if err != nil {
		return err
	}
	m.offset += int64(added.Bytes)
	if added.Replaced {
		m.epoch++
	}
	before := m.bytes
	m.bytes = m.names.Bytes()
	switch total := ts.mapsBytes.Add(m.bytes - before); {
	case total > maxMapsBytes:
		return errMapsFull
	case added.Malformed > 0:
		return fmt.Errorf("map of process %d: %d %w", p.pid, added.Malformed, errMalformedMap)
	}
	return nil
}

// A mapPiece is some of the lines of a map.
type mapPiece struct {
	file  fileID
	begin int64 // of text in the file
	text  []byte
	more  bool // follows
}

// openMapPiece reads a process's map from offset on, if it still is that file and has not shrunk; otherwise it begins anew.
// The map lies in the process's own /tmp, and has its name from the pid that the process itself knows. Others may write
// there, too: only files of the process's user and of root count.
func openMapPiece(root proc.Root, id proc.Identity, file fileID, offset int64) (piece mapPiece, err error) {
	status, err := root.Status(id.PID)
	if err != nil {
		return piece, err
	}
	f, err := root.OpenFile(id.PID, fmt.Sprintf("/tmp/perf-%d.map", status.InnermostPID()), symbolize.MaxPerfMap)
	if err != nil {
		return piece, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return piece, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	if st.Uid != status.UID && st.Uid != 0 {
		return piece, fmt.Errorf("%s of process %d: %w", f.Name(), id.PID, errForeignMap)
	}
	piece.file = fileID{st.Dev, st.Ino}
	if piece.file == file && st.Size >= offset {
		piece.begin = offset
	}
	piece.text = make([]byte, min(maxMapPiece, st.Size-piece.begin))
	n, err := f.ReadAt(piece.text, piece.begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return piece, fmt.Errorf("read %s of process %d: %w", f.Name(), id.PID, err)
	}
	piece.text = piece.text[:n]
	piece.more = piece.begin+int64(n) < st.Size
	return piece, root.Check(id)
}
