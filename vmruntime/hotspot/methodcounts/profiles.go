// Package methodcounts reads what a HotSpot VM counted in its methods: how often they were invoked, which
// calls they made, to which methods, and which branches they took.
//
//	counts := methodcounts.NewProfiler(heap)
//	counts.Resolve(tables)
//	profiles, err := counts.Profiles(methods)              // with what calls lead to, and names
//	numbers, took, err := counts.Counts(methods)           // only numbers, of very many methods
//
// Files:
//
//	profiles, counts      the counts of methods, with and without names
//	callsites, callees    the calls in a method, and what they lead to
//	dispatch              the methods of receivers
//	flow                  the branches of a method
//	methodlist, places    all methods; places in methods, named
package methodcounts

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Bounds on Profiles. What is beyond has no counts, or receivers without methods.
const (
	profileChunk = 256      // methods that are read together
	maxChunkData = 16 << 20 // bytes of their MethodData
	maxReceivers = 1 << 14  // classes that are looked up for one chunk
)

// callerBytes is how much memory a profiler keeps of what methods can call: that of some 5,000.
const callerBytes = 8 << 20

// A Profiler reads what one VM counted in its methods.
type Profiler struct {
	*javaobject.Heap
	schema     calldata.Schema
	callers    *javavm.Cache[uint64, *calling] // by method
	dispatched *javavm.Cache[dispatchKey, dispatchTarget]
	klasses    *javavm.Cache[javavm.Key, klassName]
	decoder    *calldata.Decoder
}

// NewProfiler reads the counts of the VM of that heap.
func NewProfiler(of *javaobject.Heap) *Profiler {
	return &Profiler{
		Heap:       of,
		callers:    javavm.NewCache[uint64, *calling](callerBytes),
		dispatched: javavm.NewCache[dispatchKey, dispatchTarget](dispatchBytes),
		klasses:    javavm.NewCache[javavm.Key, klassName](klassBytes),
	}
}

// Resolve looks up the fields of counts. Without them, only these are unknown.
func (p *Profiler) Resolve(from *vmstructs.Tables) { p.schema = calldata.NewSchema(from) }

// Profiles reads what was counted in these methods. What a method can call is read once; its
// counts, and what calls were resolved to if that was open, are read every time.
//
// The counts of one method come from one read, but not atomically: a call that is made meanwhile
// may be in the invocations and not in the count of its site. They are exact while only the
// interpreter and C1's code of level 3 run; C2's code counts nothing, so that they freeze. -Xint
// counts nothing at all.
func (p *Profiler) Profiles(methods []uint64) (map[uint64]*vmruntime.MethodProfile, error) {
	s := &p.schema
	if err := s.Err(p.Version.JDK); err != nil {
		return nil, err
	}
	if p.decoder == nil {
		p.decoder = calldata.NewDecoder(p.Memory, &p.Flags, &p.schema.Tags, p.Version.JDK)
	}
	const attempts = 2 // classes are unloaded in bursts, with long pauses between
	for range attempts {
		epoch := p.CurrentEpoch()
		search := newMethodSearch(klassReader{p.MethodReader(), s})
		profiles := make(map[uint64]*vmruntime.MethodProfile, len(methods))
		for chunk := range slices.Chunk(vmstructs.Distinct(methods), profileChunk) {
			if err := p.readProfiles(chunk, epoch, search, profiles); err != nil {
				return nil, fmt.Errorf("counts of calls: %w", err)
			}
		}
		if p.CurrentEpoch() == epoch {
			return profiles, nil
		}
	}
	return nil, fmt.Errorf("counts of calls: %w", vmruntime.ErrStale)
}

// readProfiles reads the profiles of one chunk of methods.
func (p *Profiler) readProfiles(methods []uint64, epoch uint32, search *methodSearch,
	to map[uint64]*vmruntime.MethodProfile) error {

	known, err := p.callings(methods, epoch)
	if err != nil {
		return err
	}
	var list []*counting
	for _, addr := range methods {
		if c := known[addr]; c != nil {
			list = append(list, &counting{calling: c, method: addr})
		}
	}
	r := callReader{p.MethodReader(), &p.schema}
	if err := r.counts(list); err != nil {
		return err
	}
	for _, m := range list {
		m.decode(&p.schema, p.decoder)
	}
	if err := search.searchCallees(list); err != nil {
		return err
	}
	targets, err := p.receivers(list, epoch, search)
	if err != nil {
		return err
	}
	for _, m := range list {
		to[m.method] = m.profile(targets)
	}
	return nil
}

// callings returns what the methods can call. Those that cannot be read, or are not what they were,
// are absent.
func (p *Profiler) callings(methods []uint64, epoch uint32) (map[uint64]*calling, error) {
	known := make(map[uint64]*calling, len(methods))
	var unsure []uint64
	for _, addr := range methods {
		if c, ok := p.callers.Get(addr); ok && c.current(epoch) && p.Epoch != nil {
			known[addr] = c
		} else {
			unsure = append(unsure, addr)
		}
	}
	if len(unsure) == 0 {
		return known, nil
	}
	r := callReader{p.MethodReader(), &p.schema}
	methodReads, symbols, err := r.WithNames(unsure)
	if err != nil {
		return nil, err
	}
	var reads []*callRead
	for i := range methodReads {
		read := &methodReads[i]
		name, ok := read.Names(symbols)
		if !ok {
			continue
		}
		fresh := &calling{
			epoch: epoch, seen: 1, read: true,
			function: methodinfo.FunctionName(name.Class, name.Name), signature: name.Signature,
		}
		before, ok := p.callers.Get(read.Addr)
		same := ok && before.function == fresh.function && before.signature == fresh.signature
		if same && before.read && before.constMethod == read.ConstMethod {
			if before.epoch != epoch {
				before.epoch, before.seen = epoch, 0
			}
			before.seen++
			known[read.Addr] = before
			continue
		}
		if ok && !same {
			p.callers.Add(read.Addr, &calling{epoch: epoch, function: fresh.function, signature: fresh.signature})
			continue // another one lies there now
		}
		fresh.constMethod = read.ConstMethod
		reads = append(reads, &callRead{calling: fresh, Read: *read})
	}
	if err := r.sites(reads); err != nil {
		return nil, err
	}
	if err := r.nameCallees(reads); err != nil {
		return nil, err
	}
	for _, m := range reads {
		known[m.Addr] = m.calling
		p.callers.Add(m.Addr, m.calling)
	}
	return known, nil
}

// receivers looks up which methods the receivers of calls that depend on them have.
func (p *Profiler) receivers(list []*counting, epoch uint32, search *methodSearch) (receiverTable, error) {
	var asked []dispatch
	var klasses []uint64
	for _, m := range list {
		m.eachRow(func(site *callSite, row calldata.ReceiverRow) {
			klasses = append(klasses, row.Klass)
			d := site.dispatch(row.Klass)
			if _, ok := p.dispatched.Get(d.key(epoch)); !ok && len(asked) < maxReceivers {
				asked = append(asked, d)
			}
		})
	}
	return p.readReceivers(asked, klasses, epoch, search)
}

// eachRow visits the classes of receivers, and the calls that they were seen at.
func (m *counting) eachRow(visit func(*callSite, calldata.ReceiverRow)) {
	for _, count := range m.counts {
		if i := m.siteAt(count.BCI); i >= 0 {
			for _, row := range count.Rows {
				visit(&m.sites[i], row)
			}
		}
	}
}

// siteAt is the index of the call at a bytecode index, or -1.
func (c *calling) siteAt(bci int) int {
	i, ok := slices.BinarySearchFunc(c.sites, bci, func(s callSite, bci int) int { return cmp.Compare(s.BCI, bci) })
	if !ok {
		return -1
	}
	return i
}

// profile puts everything together.
func (m *counting) profile(targets receiverTable) *vmruntime.MethodProfile {
	s := targets.schema
	profile := &vmruntime.MethodProfile{
		Method: m.method, Bytecode: m.bytecode, Counted: m.counted, Before: m.before, Cut: m.cut,
		Calls: make([]vmruntime.CallCount, len(m.sites)),
	}
	if m.counted {
		profile.Invocations = s.Invocations.Read(m.header) >> s.CountShift
	}
	for i := range m.sites {
		site := &m.sites[i]
		profile.Calls[i] = vmruntime.CallCount{
			BCI: site.BCI, Kind: site.Kind, Target: site.only(),
			Function: m.callees[i].function, Signature: m.callees[i].signature,
		}
	}
	for i := range m.counts {
		count := &m.counts[i]
		at := m.siteAt(count.BCI)
		if at < 0 {
			continue
		}
		call := &profile.Calls[at]
		call.Count = count.Total()
		for _, row := range count.Rows {
			call.Receivers = append(call.Receivers, targets.receiver(&m.sites[at], row))
		}
		slices.SortStableFunc(call.Receivers, func(a, b vmruntime.Receiver) int {
			return cmp.Compare(b.Count,
				a.Count)
		})
	}
	return profile
}
