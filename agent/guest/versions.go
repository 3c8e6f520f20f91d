package guest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on the code versions of one process. A sampled one takes some 500 bytes and the methods
// that are inlined in it, another one 250.
const (
	// MaxVersions is how many sampled ones are kept. When there are more, those that were given up
	// long ago are forgotten first; while all are in use, frames of further ones do not say which
	// version they are of.
	MaxVersions = 4096
	// maxAnnounced is how many others are kept, the latest: a hot method's code of C1 may have been
	// replaced before it was sampled.
	maxAnnounced = 2048
	// maxReadAnnounced is how many of these are read at once.
	maxReadAnnounced = 256
	// maxInlined bounds the inlined methods of one version.
	maxInlined = 256
	// versionsInterval is how often it is looked up at most what became of versions, while there is
	// new code or new frames.
	versionsInterval = time.Second
	// versionsShare of the time, one part in so many, is the most that goes into that, unless it is
	// wanted. It is looked up at maxVersionsInterval all the same: when a process ends, nothing is
	// known of what came after the last look.
	versionsShare       = 4000
	maxVersionsInterval = 10 * time.Second
)

// A CodeVersion is one compilation of a method, as far as the agent knows it. Times are of
// CLOCK_MONOTONIC.
type CodeVersion struct {
	vmruntime.Compilation
	Function, Signature string // those of the compiled method
	// Since is when the VM announced the compilation; if it did not (Announced), when the agent
	// first met it.
	Since     time.Duration
	Announced bool
	State     vmruntime.CodeState
	// InUse is when it was last seen in use, and Until when it was first seen that it was not; 0 if
	// it is in use.
	InUse, Until time.Duration
	Inlined      []string // methods that were compiled into it, some of at most maxInlined
	// Traps are the uncommon traps that were counted in its methods from when it was first sampled
	// to when it was given up, most first.
	Traps []Trap
	// Decompiles is how many optimised compilations of the method were given up so far; -1 if that
	// is not known.
	Decompiles int
	Sampled    bool // sampled at any time
}

// A Trap is how often code was left for the interpreter in a method, for one reason.
type Trap struct {
	Function, Reason string
	Count            int
}

// versions are the code versions of one process. The worker that has the process changes them, with
// the lock; it reads them without. It must not read the process while it has the lock: nobody knows
// how long that takes, and others wait.
type versions struct {
	wanted atomic.Bool // somebody wants to know now what became of them

	mu        sync.Mutex
	sampled   map[uint32]*version // by compile id
	announced map[uint32]*CodeVersion
	beyond    uint64 // sampled versions for which there was no room
	full      bool   // as of the last look none was given up, so that there is no room for more

	// The worker's.
	order []uint32      // order of announced: a ring once it is full
	next  int           // where in the ring the oldest is
	fresh []*version    // versions whose traps are yet to be counted
	again time.Duration // CLOCK_MONOTONIC: when it may be looked up what became of them
	due   bool          // a timer runs
}

// change calls f with the lock.
func (vs *versions) change(f func()) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	f()
}

// A version is a sampled one.
type version struct {
	CodeVersion
	mapping unique.Handle[symbol.Mapping]
	methods []trapCounter // methods that may trap in it; nil once it was given up
}

// A trapCounter is a method whose traps are counted, and how many there were when the version was
// first sampled.
type trapCounter struct {
	method   uint64
	function string
	before   map[string]int
}

// codeMapping is the mapping of frames that the VM gave for a site: that of the code version, if it
// is one.
func (p *Process) codeMapping(g *VM, site vmruntime.Site, frames []vmruntime.Frame) unique.Handle[symbol.Mapping] {
	id := site.Version
	if site.Kind != vmruntime.Compiled || id == 0 || len(frames) == 0 {
		return g.mapping
	}
	reader, err := As[vmruntime.VersionReader](g)
	if err != nil {
		return g.mapping
	}
	vs := &p.versions
	if v := vs.sampled[id]; v != nil {
		return v.mapping
	}
	room := false
	vs.change(func() {
		if room = vs.room(); !room {
			vs.beyond++
		}
	})
	if !room {
		return g.mapping
	}
	v := vs.describe(reader, site, frames[len(frames)-1])
	m := g.mapping.Value()
	m.Version = id
	v.mapping = unique.Make(m)
	vs.change(func() {
		delete(vs.announced, id)
		if vs.sampled == nil {
			vs.sampled = map[uint32]*version{}
		}
		vs.sampled[id] = v
	})
	return v.mapping
}

// room makes room for a sampled version, if there are some that were given up: many at once, as
// each new frame asks for it.
func (vs *versions) room() bool {
	if len(vs.sampled) < MaxVersions {
		return true
	}
	if vs.full {
		return false
	}
	var gone []*version
	for _, v := range vs.sampled {
		if v.Until != 0 {
			gone = append(gone, v)
		}
	}
	slices.SortFunc(gone, func(a, b *version) int { return cmp.Compare(a.Until, b.Until) })
	for _, v := range gone[:min(len(gone), max(MaxVersions/16, 1))] {
		delete(vs.sampled, v.Version)
	}
	vs.full = len(gone) == 0
	return !vs.full
}

// describe reads a version that is sampled for the first time.
func (vs *versions) describe(reader vmruntime.VersionReader, site vmruntime.Site, compiled vmruntime.Frame) *version {
	now := proc.Monotonic()
	v := &version{CodeVersion: CodeVersion{Since: now, Decompiles: -1}}
	if known := vs.announced[site.Version]; known != nil {
		v.CodeVersion = *known
	}
	v.Function, v.Signature, v.Sampled = compiled.Function, compiled.Signature, true
	c, err := reader.Described(site)
	if err != nil {
		if v.Level == 0 {
			v.Version, v.Tier, v.EntryBCI = site.Version, compiled.Tier, -1
		}
		if errors.Is(err, vmruntime.ErrStale) && v.Until == 0 {
			v.State, v.Until = vmruntime.CodeFreed, now
		}
		return v
	}
	v.Compilation, v.State = c, vmruntime.CodeGivenUp
	if c.InUse {
		v.State, v.InUse, v.Until = vmruntime.CodeInUse, now, 0
	} else if v.Until == 0 {
		v.Until = now
	}
	if c.Tier != vmruntime.TierC2 {
		return v // C1 inlines little, and does not trap
	}
	methods, names, err := reader.Inlined(site)
	if err != nil {
		return v
	}
	methods, names = methods[:min(len(methods), maxInlined)], names[:min(len(names), maxInlined)]
	v.Inlined = names
	if c.InUse {
		v.methods = append(v.methods, trapCounter{method: c.Method, function: v.Function})
		for i, m := range methods {
			v.methods = append(v.methods, trapCounter{method: m, function: names[i]})
		}
		vs.fresh = append(vs.fresh, v)
	}
	return v
}

// countTraps notes how many traps the methods of versions have had by now that were sampled for the
// first time since the last look.
func (vs *versions) countTraps(reader vmruntime.VersionReader) error {
	traps, err := reader.Traps(trapping(vs.fresh))
	vs.change(func() {
		for _, v := range vs.fresh {
			if err != nil {
				v.methods = nil
				continue
			}
			for i := range v.methods {
				v.methods[i].before = traps[v.methods[i].method].Reasons
			}
			if t, ok := traps[v.Method]; ok {
				v.Decompiles = t.Decompiles
			}
		}
	})
	vs.fresh = nil
	return err
}

// trapping are the methods of versions whose traps are counted.
func trapping(versions []*version) (list []uint64) {
	for _, v := range versions {
		for _, m := range v.methods {
			list = append(list, m.method)
		}
	}
	return list
}

// giveUp notes the traps that the methods of a version have had since it was first sampled, if they
// could be read.
func (v *version) giveUp(traps map[uint64]vmruntime.Traps, err error) {
	if v.methods == nil {
		return
	}
	if err == nil {
		for _, m := range v.methods {
			for reason, n := range traps[m.method].Reasons {
				if more := n - m.before[reason]; more > 0 {
					v.Traps = append(v.Traps, Trap{m.function, reason, more})
				}
			}
		}
		if t, ok := traps[v.Method]; ok {
			v.Decompiles = t.Decompiles
		}
		slices.SortFunc(v.Traps, func(a, b Trap) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Function, b.Function),
				cmp.Compare(a.Reason, b.Reason))
		})
	}
	v.methods = nil
}

// announced keeps a compilation that the VM announced, as it may be replaced before it is sampled.
// It is only read once the method turns out to be one that is sampled: a VM that starts announces
// thousands.
func (p *Process) announced(g *VM, l vmruntime.CodeLoad) {
	reader, err := As[vmruntime.VersionReader](g)
	if err != nil || l.Version == 0 {
		return
	}
	vs := &p.versions
	if known := vs.sampled[l.Version]; known != nil {
		if !known.Announced {
			vs.change(func() { known.Since, known.Announced = l.At, true })
		}
		return
	}
	f := reader.Announced(l)
	v := CodeVersion{
		Compilation: vmruntime.Compilation{Version: l.Version, Begin: l.Begin, End: l.Begin + uint64(l.Size),
			EntryBCI: -1},
		Function: f.Function, Signature: f.Signature, Since: l.At, Announced: true, Decompiles: -1,
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.announced == nil {
		vs.announced = map[uint32]*CodeVersion{}
	}
	if len(vs.order) < maxAnnounced {
		vs.order = append(vs.order, l.Version)
	} else {
		delete(vs.announced, vs.order[vs.next])
		vs.order[vs.next] = l.Version
		vs.next = (vs.next + 1) % maxAnnounced
	}
	vs.announced[l.Version] = &v
}

// read reads the compilation that was announced, if it is still there.
func (vs *versions) read(v *CodeVersion, reader vmruntime.VersionReader) {
	c, err := reader.Described(vmruntime.Site{Kind: vmruntime.Compiled, PC: v.Begin, Version: v.Version})
	vs.change(func() {
		switch {
		case err == nil:
			v.Compilation = c
		case errors.Is(err, vmruntime.ErrStale):
			v.State, v.Until = vmruntime.CodeFreed, proc.Monotonic()
		}
	})
}

// methodKey identifies a compiled method.
type methodKey struct{ function, signature string }

func (v *CodeVersion) key() methodKey { return methodKey{v.Function, v.Signature} }

// hot are the methods of which a version was sampled, among some versions.
func (vs *versions) hot(sampled func(id uint32) bool) map[methodKey]bool {
	hot := map[methodKey]bool{}
	for id, v := range vs.sampled {
		if sampled(id) {
			hot[v.key()] = true
		}
	}
	return hot
}

// WantVersions has the worker find out what became of the process's code versions when it comes
// next (Resolver.Submit).
func (p *Process) WantVersions() { p.versions.wanted.Store(true) }

// followVersions finds out what became of versions, if that is due. Fresh says that there was work,
// so that code may have changed.
func (rs *Resolver) followVersions(p *Process, g *VM, fresh bool) {
	vs := &p.versions
	now := proc.Monotonic()
	wait := vs.again - now
	switch wanted := vs.wanted.Swap(false); {
	case len(vs.sampled) == 0:
		return
	case wanted:
	case wait > 0 && fresh && !vs.due:
		vs.due = true
		rs.queue.submitLater(p, wait)
		return
	case wait > 0 || !fresh && !vs.due:
		return
	}
	vs.due = false
	if reader, err := As[vmruntime.VersionReader](g); err == nil {
		rs.reads.count(vs.refresh(reader))
	}
	took := proc.Monotonic() - now
	vs.again = now + took + min(max(versionsInterval, versionsShare*took), maxVersionsInterval)
}

// refresh reads the states of versions that may be in use: of the sampled ones, and of others of
// the same methods.
func (vs *versions) refresh(reader vmruntime.VersionReader) error {
	var list []*CodeVersion
	for _, v := range vs.sampled {
		if v.State <= vmruntime.CodeInUse && v.Addr != 0 {
			list = append(list, &v.CodeVersion)
		}
	}
	hot := vs.hot(func(uint32) bool { return true })
	read := 0
	for _, v := range vs.announced {
		if v.State > vmruntime.CodeInUse || !hot[v.key()] {
			continue
		}
		if v.Addr == 0 && read < maxReadAnnounced {
			read++
			vs.read(v, reader)
		}
		if v.Addr != 0 {
			list = append(list, v)
		}
	}
	codes := make([]vmruntime.Compilation, len(list))
	for i, v := range list {
		codes[i] = v.Compilation
	}
	before := proc.Monotonic() // in use until then at least
	states, err := reader.States(codes)
	if err != nil {
		return err
	}
	after := proc.Monotonic()
	if err := vs.countTraps(reader); err != nil { // after the states: what was given up by then had its traps before
		return err
	}
	var ended []*version
	for i, v := range list {
		if s := vs.sampled[v.Version]; s != nil && states[i] > vmruntime.CodeInUse && v.Until == 0 {
			ended = append(ended, s)
		}
	}
	traps, err := reader.Traps(trapping(ended))
	vs.change(func() {
		vs.full = false
		for i, v := range list {
			switch states[i] {
			case vmruntime.CodeUnknown:
			case vmruntime.CodeInUse:
				v.State, v.InUse, v.Until = vmruntime.CodeInUse, before, 0
			default:
				v.State = states[i]
				if v.Until == 0 {
					v.Until = after
				}
			}
		}
		for _, v := range ended {
			v.giveUp(traps, err)
		}
	})
	return nil
}

// Versions returns the code versions with these compile ids, and others of the same methods that
// were there after since, by method and age. It returns how many sampled versions the process has
// had for which there was no room.
func (p *Process) Versions(ids map[uint32]struct{}, since time.Duration) (list []CodeVersion, beyond uint64) {
	vs := &p.versions
	vs.mu.Lock()
	defer vs.mu.Unlock()
	in := func(id uint32) bool {
		_, ok := ids[id]
		return ok
	}
	hot := vs.hot(in)
	add := func(v *CodeVersion) {
		if in(v.Version) || hot[v.key()] && (v.Until == 0 || v.Until >= since) {
			list = append(list, *v)
		}
	}
	for _, v := range vs.sampled {
		add(&v.CodeVersion)
	}
	for v := range maps.Values(vs.announced) {
		add(v)
	}
	slices.SortFunc(list, func(a, b CodeVersion) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Signature, b.Signature),
			cmp.Compare(a.Since, b.Since),
			cmp.Compare(a.Version, b.Version))
	})
	return list, vs.beyond
}
