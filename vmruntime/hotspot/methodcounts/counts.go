package methodcounts

import (
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A counting is one method on the way to its profile.
type counting struct {
	*calling
	method   uint64
	pointer  uint64 // pointer to its MethodData, 0 if there is none
	counters uint64 // MethodCounters
	before   uint64 // invocations that those have
	object   []byte // the MethodData, if it has one that makes sense
	counted  bool   // the next two have a meaning
	header   []byte // header of object
	counts   []calldata.SiteCount
}

// counts reads MethodData and MethodCounters of methods, and what calls were resolved to by now.
func (r callReader) counts(list []*counting) error {
	var pending []*callSite
	for _, m := range list {
		for i := range m.sites {
			if s := &m.sites[i]; !s.Resolved && s.entry != 0 {
				pending = append(pending, s)
			}
		}
	}
	if err := r.pointers(list); err != nil {
		return err
	}
	if err := r.resolve(pending); err != nil {
		return err
	}
	if err := r.objects(list); err != nil {
		return err
	}
	return r.early(list)
}

// pointers reads where MethodData and MethodCounters are.
func (r callReader) pointers(list []*counting) error {
	var pointers vmstructs.Batch
	for _, m := range list {
		pointers.Add(r.schema.MethodData.At(m.method), vmstructs.WordSize)
		pointers.Add(r.schema.MethodCounters.At(m.method), vmstructs.WordSize)
	}
	if err := pointers.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range list {
		data, _ := pointers.Word(2 * i)
		m.pointer = data
		if data != m.data {
			m.data, m.dataSize = data, 0
		}
		m.counters, _ = pointers.Word(2*i + 1)
	}
	return nil
}

// objects reads the MethodData: at once where its size is known from before, else its header first.
func (r callReader) objects(list []*counting) error {
	s := r.schema
	for range 2 {
		var objects vmstructs.Batch
		budget := uint64(maxChunkData)
		read := make([]*counting, 0, len(list))
		for _, m := range list {
			size := max(m.dataSize, s.Header())
			if m.data == 0 || uint64(len(m.object)) >= size || size > budget {
				continue
			}
			budget -= size
			objects.Add(m.data, size)
			objects.Add(s.CountersInvocations.Of(m.counters), 4)
			read = append(read, m)
		}
		if err := objects.Read(r.Mem); err != nil {
			return err
		}
		for i, m := range read {
			object, ok := objects.Bytes(2 * i)
			size := s.Header() + s.DataSize.Read(object)
			if !ok || s.Owner.Read(object) != m.method || size > calldata.MaxMethodData ||
				size%calldata.EntryCell != 0 {
				m.object, m.data, m.dataSize = nil, 0, 0
				continue
			}
			m.object, m.dataSize = object, size
			if before, ok := objects.Word(2*i + 1); ok {
				m.before = before >> s.CountShift
			}
		}
	}
	return nil
}

// early reads how often methods were invoked that have no MethodData yet.
func (r callReader) early(list []*counting) error {
	s := r.schema
	var counters vmstructs.Batch
	for _, m := range list {
		addr := uint64(0)
		if m.object == nil {
			addr = s.CountersInvocations.Of(m.counters)
		}
		counters.Add(addr, 4)
	}
	if err := counters.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range list {
		if before, ok := counters.Word(i); ok {
			m.before = before >> s.CountShift
		}
	}
	return nil
}

// decode takes the counts out of the MethodData, if it is whole.
func (m *counting) decode(s *calldata.Schema, d *calldata.Decoder) {
	if m.object == nil || uint64(len(m.object)) < m.dataSize || m.dataSize == 0 {
		return
	}
	counts, err := d.Decode(m.object[s.Header():m.dataSize])
	if err != nil {
		return
	}
	m.header, m.counts, m.counted = m.object[:s.Header()], counts, true
}

// Bounds on Counts. What is beyond the bytes is unreadable.
const (
	countChunk    = 1024      // methods that are read together
	maxExecuted   = 1 << 18   // methods that ran: some 300 bytes each
	maxCountBytes = 256 << 20 // bytes of MethodData; 50,000 methods have some 75 MB
)

// Counts reads what was counted in these methods, as numbers only, of those that ran: three
// microseconds each. They are read one chunk after the other, so that numbers of different methods
// are of different moments: took is from the first to the last one.
func (p *Profiler) Counts(methods []uint64) (_ []vmruntime.MethodCounts, took time.Duration, _ error) {
	s := &p.schema
	if err := s.Err(p.Version.JDK); err != nil {
		return nil, 0, err
	}
	if p.decoder == nil {
		p.decoder = calldata.NewDecoder(p.Memory, &p.Flags, &p.schema.Tags, p.Version.JDK)
	}
	r := callReader{p.MethodReader(), s}
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
			return nil, nil, fmt.Errorf("counts of calls: more than %d methods ran: %w", maxExecuted,
				vmruntime.ErrMalformed)
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
func (m *counting) numbers(s *calldata.Schema) vmruntime.MethodCounts {
	c := vmruntime.MethodCounts{Method: m.method, Data: m.pointer, Before: m.before}
	if !m.counted {
		c.Unreadable = m.pointer != 0
		return c
	}
	c.Invocations = s.Invocations.Read(m.header) >> s.CountShift
	for _, site := range m.counts {
		if site.Total() == 0 {
			continue
		}
		counts := vmruntime.SiteCounts{BCI: site.BCI, Others: site.Count}
		for _, row := range site.Rows {
			counts.Rows = append(counts.Rows, vmruntime.RowCount{Klass: row.Klass, Count: row.Count})
		}
		c.Sites = append(c.Sites, counts)
	}
	return c
}

// Traps reads the counts of uncommon traps in methods, from their MethodData.
func (p *Profiler) Traps(methods []uint64) (map[uint64]vmruntime.Traps, error) {
	s := &p.schema
	size := s.Traps.Length()
	if size == 0 || !s.MethodData.Known {
		return nil, nil
	}
	methods = vmstructs.Distinct(methods)
	var pointers, objects vmstructs.Batch
	for _, m := range methods {
		pointers.Add(s.MethodData.At(m), vmstructs.WordSize)
	}
	if err := pointers.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("uncommon traps: %w", err)
	}
	for i := range methods {
		data, _ := pointers.Word(i)
		objects.Add(data, size)
	}
	if err := objects.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("uncommon traps: %w", err)
	}
	found := make(map[uint64]vmruntime.Traps)
	for i, m := range methods {
		if object, ok := objects.Bytes(i); ok {
			if traps, ok := s.Traps.Decode(m, object); ok {
				found[m] = traps
			}
		}
	}
	return found, nil
}
