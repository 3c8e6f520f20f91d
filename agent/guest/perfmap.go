package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A perfMap is the map that the VM of a process writes of its code, as far as it was read. The
// worker that has the process has it.
type perfMap struct {
	found  bool
	mapper vmruntime.CodeMapper // nil until it was found
	names  vmruntime.CodeMap    // nil until it was found, and after it was given up
	bytes  int64                // size of names, as charged to the agent's bound

	look   retry.Backoff // back-off of looking for it, and for what replaced it
	useful bool          // false once it was given up
	missed []Wanted      // frames whose code it did not know
	news   bool          // it got lines since those were looked up
	memory *proc.Memory  // memory of the process, once somebody wants it
}

// Bounds on maps; a vmruntime.CodeMapper has those of one.
const (
	mapInterval  = time.Second // time between two reads of a map
	maxMapsBytes = 256 << 20   // memory of all maps together
	maxMissed    = 1 << 12     // frames that wait for a line
)

// lookForMap is when a process that has no map is looked at again, if it has new code without
// names.
var lookForMap = retry.Backoff{First: time.Second}

var errMapsFull = fmt.Errorf("maps of compiled code use more than %d bytes in all processes together",
	int64(maxMapsBytes))

// jitMapping is where code is that only a map names. Which VM made it the map does not say.
var jitMapping = unique.Make(symbol.Mapping{File: "[jit]"})

// nameJIT names code at pc, which is r's, by the map of p's VM. False if it has none, or if that
// does not know it.
func (rs *Resolver) nameJIT(p *Process, pc uint64, r Wanted) (Name, bool) {
	rs.lookForMap(p)
	m := &p.work.perf
	if !m.useful {
		return Name{}, false
	}
	e, ok := m.names.Find(pc)
	if !ok {
		if len(m.missed) < maxMissed {
			m.missed = append(m.missed, r)
		}
		return Name{}, false
	}
	function := symbol.CleanName(e.Name)
	s := symbol.Intern(symbol.Frame{Function: function, SystemName: function, Kind: symbol.KindJIT, Mapping: jitMapping,
		Address: pc})
	return Name{Symbols: []symbol.Symbol{s}, BCIs: []int32{codeOffset(r.Frame.PC() - e.Begin)}}, true
}

// codeOffset is where in its code a return address is; -1 if nobody has code that long.
func codeOffset(bytes uint64) int32 {
	if bytes > 1<<30 {
		return -1
	}
	return int32(bytes)
}

// hasVM reports whether names of p's code come from a VM's own tables: then its map is of no use.
func (rs *Resolver) hasVM(p *Process) bool {
	return p.work.vm != nil || p.work.hopeless || rs.FindLibrary(p.work.maps) != nil
}

// lookForMap finds p's map, if it is time to look for it.
func (rs *Resolver) lookForMap(p *Process) {
	m := &p.work.perf
	if m.look.First == 0 {
		m.look = lookForMap
	}
	if !m.found && !p.Exited.Load() && !rs.hasVM(p) && m.look.Due(proc.Monotonic()) {
		rs.ReadMap(p)
	}
}

// followMap reads what p's map got since the last time, and names what waited for it.
func (rs *Resolver) followMap(p *Process) {
	switch m := &p.work.perf; {
	case !m.useful || p.Exited.Load():
	case rs.hasVM(p):
		rs.giveUpMap(p, nil)
	default:
		if p.Code.Load().Due(proc.Monotonic()) {
			rs.ReadMap(p)
		}
		if m.news {
			m.news = false
			rs.nameMissed(p)
		}
	}
}

// nameMissed names frames whose code the map did not know when they came.
func (rs *Resolver) nameMissed(p *Process) {
	missed := p.work.perf.missed
	p.work.perf.missed = nil
	for _, r := range missed {
		n := rs.Name(p, r)
		p.naming.Lock()
		if _, still := p.names[r.RawFrame]; still {
			p.names[r.RawFrame] = n
		}
		p.naming.Unlock()
	}
}

// ReadMap reads what p's map got since the last time, and publishes in p.Code where its code is.
// The worker that has p calls it.
func (rs *Resolver) ReadMap(p *Process) {
	m := &p.work.perf
	if m.found && !m.useful {
		return // it was given up
	}
	defer rs.publish(p)
	if m.mapper != nil {
		rs.readMapOf(p, m.mapper)
		return
	}
	for _, r := range rs.runtimes {
		if mapper, ok := r.Runtime.(vmruntime.CodeMapper); ok && rs.readMapOf(p, mapper) {
			return
		}
	}
}

// readMapOf reads on in the map that a VM of that runtime writes. It is false if there is none.
func (rs *Resolver) readMapOf(p *Process, mapper vmruntime.CodeMapper) (exists bool) {
	m := &p.work.perf
	for more := true; more; {
		var from vmruntime.MapPosition // a copy, as a call may outlast its deadline
		if m.names != nil {
			from = m.names.Position()
		}
		piece, err := Call(rs, p, func() (vmruntime.MapPiece, error) {
			return readMapPiece(rs.root, p.Identity(), mapper, from)
		})
		if errors.Is(err, fs.ErrNotExist) {
			return exists // there is none, or none any more: what was in it is as right as before
		}
		exists = true
		more = piece.More
		if err == nil {
			err = rs.addPiece(p, mapper, piece)
			grown := m.names.Position() != from
			more = more && grown
			m.news = m.news || grown
		}
		rs.reads.count(err)
		switch {
		case err == nil, errors.Is(err, vmruntime.ErrMalformed):
		case errors.Is(err, vmruntime.ErrMapFull), errors.Is(err, proc.ErrTooLarge), errors.Is(err, errMapsFull),
			errors.Is(err, vmruntime.ErrForeignMap), errors.Is(err, proc.ErrNotOfUser):
			rs.giveUpMap(p, err)
			return exists
		default:
			rs.log.Debug("cannot read map of compiled code", "pid", p.PID, "err", err)
			return exists
		}
	}
	return exists
}

// MappedCode is the code at pc that p's map names; false if it names none. The worker that has p
// calls it.
func (p *Process) MappedCode(pc uint64) (vmruntime.MappedCode, bool) {
	if p.work.perf.names == nil {
		return vmruntime.MappedCode{}, false
	}
	return p.work.perf.names.Find(pc)
}

// MayBeJIT reports whether code at pc may be a JIT compiler's. The worker that has p calls it.
func (p *Process) MayBeJIT(pc uint64) bool { return mayBeJIT(p.work.maps.Find(pc)) }

// CodeMemory is the memory of a process whose code a map names. The worker that has p calls it, and
// the memory is closed when the map is given up or p has ended.
func (rs *Resolver) CodeMemory(p *Process) (*proc.Memory, error) {
	m := &p.work.perf
	if !m.useful || p.Exited.Load() {
		return nil, fmt.Errorf("process %d has no map of its code: %w", p.PID, proc.ErrGone)
	}
	if m.memory == nil {
		memory, err := proc.OpenMemory(rs.root, p.Identity(), rs.pool)
		rs.reads.count(err)
		if err != nil {
			return nil, err
		}
		m.memory = memory
	}
	return m.memory, nil
}

// publish lets the drainer know where the code is that the map names.
func (rs *Resolver) publish(p *Process) {
	m := &p.work.perf
	if !m.useful {
		p.Code.Store(nil)
		return
	}
	low, high := m.names.Bounds()
	p.Code.Store(&JITCode{Low: low, High: high, Epoch: m.names.Epoch(), Again: proc.Monotonic() + mapInterval})
}

// giveUpMap forgets p's map for good. If that is not because of a VM's own tables, err says why.
func (rs *Resolver) giveUpMap(p *Process, err error) {
	if err != nil {
		rs.log.Debug("map of compiled code is not used", "pid", p.PID, "err", err)
		p.mu.Lock()
		p.notes = append(p.notes, fmt.Sprintf("compiled code of process %d has no names: %v", p.PID, err))
		p.mu.Unlock()
	}
	rs.releaseMap(p)
	p.work.perf.found = true // and not looked for any more
	rs.publish(p)
}

// releaseMap gives back what p's map holds.
func (rs *Resolver) releaseMap(p *Process) {
	m := &p.work.perf
	rs.mapsBytes.Add(-m.bytes)
	if m.memory != nil {
		m.memory.Close()
	}
	m.names, m.bytes, m.missed, m.memory, m.useful = nil, 0, nil, nil, false
}

// addPiece takes a piece of p's map.
func (rs *Resolver) addPiece(p *Process, mapper vmruntime.CodeMapper, piece vmruntime.MapPiece) error {
	m := &p.work.perf
	if m.names == nil {
		m.mapper, m.names = mapper, mapper.NewMap()
	}
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
	switch total := rs.mapsBytes.Add(m.bytes - before); {
	case total > maxMapsBytes:
		return errMapsFull
	case added.Malformed > 0:
		return fmt.Errorf("map of process %d: %d entries: %w", p.PID, added.Malformed, vmruntime.ErrMalformed)
	}
	return nil
}

// readMapPiece reads on in a process's map, in the process's own /tmp.
func readMapPiece(
	root proc.Root, id proc.Identity, mapper vmruntime.CodeMapper, from vmruntime.MapPosition,
) (piece vmruntime.MapPiece, err error) {
	status, err := root.Status(id.PID)
	if err != nil {
		return piece, err
	}
	path, most := mapper.MapFile(status.InnermostPID())
	f, err := root.OpenFile(id.PID, path, most)
	if err != nil {
		return piece, err
	}
	defer f.Close()
	piece, err = mapper.ReadMap(f, status.UID, from)
	switch {
	case errors.Is(err, vmruntime.ErrForeignMap):
		return piece, fmt.Errorf("%s of process %d: %w: %w", f.Name(), id.PID, err, proc.ErrDenied)
	case err != nil:
		return piece, fmt.Errorf("read %s of process %d: %w", f.Name(), id.PID, err)
	}
	return piece, root.Check(id)
}

// A JITCode is the address ranges of the code that the map of a process's VM names, for the
// drainer. It is immutable; a nil JITCode has no code.
type JITCode struct {
	Low, High uint64 // all of it is in [low, high)
	// Epoch changes when a name that was given is not right any more: frames from then on are other
	// ones.
	Epoch uint32
	Again time.Duration // when the map is to be read on, CLOCK_MONOTONIC
}

// Holds reports whether the map may name the code that f is in.
func (c *JITCode) Holds(f bpf.Frame) bool {
	return c != nil && f.Kind() == bpf.FrameNative && f.PC() >= c.Low && f.PC() < c.High
}

// Mark sets the epoch of frames in the code, which distinguishes them from frames of code that was
// there before.
func (c *JITCode) Mark(stack []RawFrame) {
	for i := range stack {
		if r := &stack[i]; (r.Kind == RawExact || r.Kind == RawReturn) && c.Holds(r.Frame) {
			r.Epoch = c.Epoch
		}
	}
}

// Marks reports whether c marks frames as o does.
func (c *JITCode) Marks(o *JITCode) bool {
	return c == o || c != nil && o != nil && c.Epoch == o.Epoch && c.Low == o.Low && c.High == o.High
}

// Due reports whether the map is to be read on, at that time of CLOCK_MONOTONIC.
func (c *JITCode) Due(now time.Duration) bool { return c != nil && now >= c.Again }

// mayBeJIT reports whether code in a mapping may be a JIT compiler's: in memory that is no file, or
// only looks like one, as memory that is mapped twice or shared does. Mappings are known as they
// were a moment ago, and compilers take the right to execute away from their memory while they
// write; so what is not mapped may be theirs, too.
func mayBeJIT(m *proc.Mapping) bool {
	if m == nil {
		return true
	}
	if !m.IsFile() {
		return !strings.HasPrefix(m.Path, "[v") // [vdso], [vsyscall]
	}
	return m.Deleted && (strings.HasPrefix(m.Path, "/memfd:") || strings.HasPrefix(m.Path, "/SYSV") ||
		m.Path == "/dev/zero")
}
