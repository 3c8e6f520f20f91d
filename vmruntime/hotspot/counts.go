package hotspot

import (
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on Counts. What is beyond the bytes is unreadable.
const (
	countChunk    = 1024      // methods that are read together
	maxExecuted   = 1 << 18   // methods that ran: some 300 bytes each
	maxCountBytes = 256 << 20 // of MethodData; 50,000 methods have some 75 MB
)

// Counts reads what was counted in these methods, as numbers only, of those that ran: three microseconds each. They are read one
// chunk after the other, so that numbers of different methods are of different moments: took is from the first to the last one.
func (p *Process) Counts(methods []uint64) (_ []vmruntime.MethodCounts, took time.Duration, _ error) {
	s := &p.schema.profile
	if err := s.err(p.version); err != nil {
		return nil, 0, err
	}
	if p.decoder == nil {
		p.decoder = newDataDecoder(p.target, p.schema, p.version)
	}
	r := callReader{p.methodReader(), s}
	counted, young, err := r.executed(methods)
	if err != nil {
		return nil, 0, err
	}
	began, bytes := time.Now(), 0
	err = inChunks(counted, func(chunk []*counting) error {
		if bytes > maxCountBytes {
			return nil // they are unreadable
		}
		err := r.objects(chunk)
		for _, m := range chunk {
			bytes += len(m.object)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	took = time.Since(began)
	if err := inChunks(young, r.early); err != nil {
		return nil, 0, err
	}
	counts := make([]vmruntime.MethodCounts, 0, len(counted)+len(young))
	for _, m := range slices.Concat(counted, young) {
		m.decode(s, p.decoder)
		counts = append(counts, m.numbers(s))
	}
	return counts, took, nil
}

// executed sorts out the methods that ran: those that the VM counts in, and those that are young.
func (r callReader) executed(methods []uint64) (counted, young []*counting, err error) {
	for chunk := range slices.Chunk(methods, countChunk) {
		known, list := make([]calling, len(chunk)), make([]*counting, len(chunk))
		for i, m := range chunk {
			list[i] = &counting{calling: &known[i], method: m}
		}
		if err := r.pointers(list); err != nil {
			return nil, nil, fmt.Errorf("counts of calls: %w", err)
		}
		for _, m := range list {
			switch {
			case m.pointer != 0:
				counted = append(counted, m)
			case m.counters != 0:
				young = append(young, m)
			}
		}
		if len(counted)+len(young) > maxExecuted {
			return nil, nil, fmt.Errorf("counts of calls: more than %d methods ran: %w", maxExecuted, vmruntime.ErrMalformed)
		}
	}
	return counted, young, nil
}

func inChunks(list []*counting, read func([]*counting) error) error {
	for chunk := range slices.Chunk(list, countChunk) {
		if err := read(chunk); err != nil {
			return fmt.Errorf("counts of calls: %w", err)
		}
	}
	return nil
}

// numbers are what was read.
func (m *counting) numbers(s *profileSchema) vmruntime.MethodCounts {
	c := vmruntime.MethodCounts{Method: m.method, Data: m.pointer, Before: m.before}
	if !m.counted {
		c.Unreadable = m.pointer != 0
		return c
	}
	c.Invocations = s.invocations.of(m.header) >> s.countShift
	for _, site := range m.counts {
		if site.total() == 0 {
			continue
		}
		counts := vmruntime.SiteCounts{BCI: site.bci, Others: site.count}
		for _, row := range site.rows {
			counts.Rows = append(counts.Rows, vmruntime.RowCount{Klass: row.klass, Count: row.count})
		}
		c.Sites = append(c.Sites, counts)
	}
	return c
}
