package counters

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Reading is what the VM has counted so far. It is immutable.
type Reading struct {
	At      time.Time     // when it was read
	Took    time.Duration // from the first counter to the last one
	Epoch   uint32        // how many times the VM had unloaded or changed classes
	methods map[uint64]vmruntime.MethodCounts
}

// Read reads the counters of all methods, after those were listed.
func Read(vm VM, epoch func() uint32) (*Reading, error) {
	r := &Reading{Epoch: epoch()}
	methods, err := vm.Methods()
	if err != nil {
		return nil, err
	}
	counts, took, err := vm.Counts(methods)
	if err != nil {
		return nil, err
	}
	r.At, r.Took = time.Now(), took
	if epoch() != r.Epoch {
		return nil, fmt.Errorf("read counters: %w", vmruntime.ErrStale)
	}
	r.keep(counts)
	return r, nil
}

// keep stores the counts of methods that ran.
func (r *Reading) keep(counts []vmruntime.MethodCounts) {
	r.methods = make(map[uint64]vmruntime.MethodCounts, len(counts)/8)
	for _, m := range counts {
		if m.Data != 0 || m.Before > 0 {
			r.methods[m.Method] = m
		}
	}
}

// Counted returns the number of methods whose calls the VM counts.
func (r *Reading) Counted() (n int) {
	for _, m := range r.methods {
		if m.Data != 0 {
			n++
		}
	}
	return n
}

// A Call is a call site, and the class of its receivers where the VM counts them by class.
type Call struct {
	Method uint64 // the method whose code makes the call
	BCI    int
	Klass  uint64 // 0 if the VM does not count by class there, or has no row left for the class
}

// A Difference is the calls between two readings.
type Difference struct {
	Length    time.Duration // from one to the other
	Uncertain time.Duration // how long both took: calls of that time are in or out
	Calls     map[Call]uint64
	Losses    Losses
	entered   map[uint64]uint64 // invocations of methods that the VM counts in
}

// Losses are what a Difference lacks.
type Losses struct {
	Uncounted  uint64 // invocations of methods before the VM counted their calls: what they called is missing
	Unloaded   int    // methods that no longer exist: their calls are missing
	Unreadable int    // methods whose counters cannot be read: their calls are missing
	Reset      int    // counters that are lower than before: earlier counts are missing
	Epochs     int    // times that classes were unloaded or changed
}

// Since returns the difference to an earlier reading of the same VM.
func (r *Reading) Since(earlier *Reading) *Difference {
	d := &Difference{
		Length: r.At.Sub(earlier.At), Uncertain: r.Took + earlier.Took,
		Calls: map[Call]uint64{}, entered: map[uint64]uint64{},
		Losses: Losses{Epochs: int(r.Epoch%vmruntime.EpochChange - earlier.Epoch%vmruntime.EpochChange)},
	}
	if r.Epoch != earlier.Epoch && d.Losses.Epochs == 0 {
		d.Losses.Epochs = 1 // changed, not unloaded
	}
	for addr, m := range r.methods {
		before, known := earlier.methods[addr]
		d.Losses.Uncounted += uncounted(&m, &before, known)
		switch {
		case m.Data == 0:
		case m.Unreadable, before.Unreadable && before.Data == m.Data:
			d.Losses.Unreadable++
		case before.Data != m.Data: // counted from 0 since then
			d.add(&m, &vmruntime.MethodCounts{})
		default:
			d.add(&m, &before)
		}
	}
	for addr, m := range earlier.methods {
		if _, still := r.methods[addr]; !still && m.Data != 0 {
			d.Losses.Unloaded++
		}
	}
	return d
}

// uncounted returns how often a method was invoked between two readings before the VM counted its
// calls.
func uncounted(m, before *vmruntime.MethodCounts, known bool) uint64 {
	if known && m.Before < before.Before {
		return 0 // the address belongs to another method by now
	}
	return m.Before - before.Before
}

// add adds what was counted in a method.
func (d *Difference) add(m, before *vmruntime.MethodCounts) {
	if m.Invocations >= before.Invocations { // else it wrapped around: it has 29 bits up to JDK 14, 31 later
		d.entered[m.Method] = m.Invocations - before.Invocations
	}
	for i := range m.Sites {
		s := &m.Sites[i]
		d.addSite(m.Method, s, siteAt(before.Sites, s.BCI))
	}
	for i := range before.Sites {
		if siteAt(m.Sites, before.Sites[i].BCI) == nil {
			d.Losses.Reset++
		}
	}
}

// siteAt returns the call at a bytecode index, or nil. The VM lists them in bytecode order.
func siteAt(sites []vmruntime.SiteCounts, bci int) *vmruntime.SiteCounts {
	i, ok := slices.BinarySearchFunc(sites, bci, func(s vmruntime.SiteCounts,
		bci int) int {
		return cmp.Compare(s.BCI, bci)
	})
	if !ok {
		return nil
	}
	return &sites[i]
}

// addSite adds what was counted at a call. before is nil if the earlier count was zero.
func (d *Difference) addSite(method uint64, s, before *vmruntime.SiteCounts) {
	var was map[uint64]uint64
	if before != nil {
		if s.Others == before.Others && slices.Equal(s.Rows, before.Rows) {
			return // as most are
		}
		was = byClass(before)
	}
	for klass, n := range byClass(s) {
		if n < was[klass] {
			d.Losses.Reset++
		} else {
			n -= was[klass]
		}
		delete(was, klass)
		if n > 0 {
			d.Calls[Call{method, s.BCI, klass}] += n
		}
	}
	for _, n := range was {
		if n > 0 {
			d.Losses.Reset++ // the row has another class now, or none
		}
	}
}

// byClass returns the counters of a call by the class of receivers; 0 is for those in no row. Two
// rows may have the same class if two compilations took one each.
func byClass(s *vmruntime.SiteCounts) map[uint64]uint64 {
	counts := map[uint64]uint64{0: s.Others}
	for _, row := range s.Rows {
		counts[row.Klass] += row.Count
	}
	return counts
}
