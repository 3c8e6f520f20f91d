package hotspot

// A counting is one method on the way to its profile.
type counting struct {
	*calling
	method   uint64
	pointer  uint64 // to its MethodData, 0 if there is none
	counters uint64 // MethodCounters
	before   uint64 // invocations that those have
	object   []byte // the MethodData, if it has one that makes sense
	counted  bool   // the next two have a meaning
	header   []byte // of object
	counts   []siteCount
}

// counts reads MethodData and MethodCounters of methods, and what calls were resolved to by now.
func (r callReader) counts(list []*counting) error {
	var pending []*callSite
	for _, m := range list {
		for i := range m.sites {
			if s := &m.sites[i]; !s.resolved && s.entry != 0 {
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
	var pointers batch
	for _, m := range list {
		pointers.add(r.schema.methodData.at(m.method), wordSize)
		pointers.add(r.schema.methodCounters.at(m.method), wordSize)
	}
	if err := pointers.read(r.mem); err != nil {
		return err
	}
	for i, m := range list {
		data, _ := pointers.word(2 * i)
		m.pointer = data
		if data != m.data {
			m.data, m.dataSize = data, 0
		}
		m.counters, _ = pointers.word(2*i + 1)
	}
	return nil
}

// objects reads the MethodData: at once where its size is known from before, else its header first.
func (r callReader) objects(list []*counting) error {
	s := r.schema
	for range 2 {
		var objects batch
		budget := uint64(maxChunkData)
		read := make([]*counting, 0, len(list))
		for _, m := range list {
			size := max(m.dataSize, s.header())
			if m.data == 0 || uint64(len(m.object)) >= size || size > budget {
				continue
			}
			budget -= size
			objects.add(m.data, size)
			objects.add(address(m.counters, s.countersInvocations), 4)
			read = append(read, m)
		}
		if err := objects.read(r.mem); err != nil {
			return err
		}
		for i, m := range read {
			object, ok := objects.bytes(2 * i)
			size := s.header() + s.dataSize.of(object)
			if !ok || s.owner.of(object) != m.method || size > maxMethodData || size%dataCell != 0 {
				m.object, m.data, m.dataSize = nil, 0, 0
				continue
			}
			m.object, m.dataSize = object, size
			if before, ok := objects.word(2*i + 1); ok {
				m.before = before >> s.countShift
			}
		}
	}
	return nil
}

// early reads how often methods were invoked that have no MethodData yet.
func (r callReader) early(list []*counting) error {
	s := r.schema
	var counters batch
	for _, m := range list {
		addr := uint64(0)
		if m.object == nil {
			addr = address(m.counters, s.countersInvocations)
		}
		counters.add(addr, 4)
	}
	if err := counters.read(r.mem); err != nil {
		return err
	}
	for i, m := range list {
		if before, ok := counters.word(i); ok {
			m.before = before >> s.countShift
		}
	}
	return nil
}

// address is that of a field of the object at addr, 0 if there is none.
func address(addr uint64, f field) uint64 {
	if addr == 0 || !f.known {
		return 0
	}
	return f.at(addr)
}

// decode takes the counts out of the MethodData, if it is whole.
func (m *counting) decode(s *profileSchema, d *dataDecoder) {
	if m.object == nil || uint64(len(m.object)) < m.dataSize || m.dataSize == 0 {
		return
	}
	counts, err := d.decode(m.object[s.header():m.dataSize])
	if err != nil {
		return
	}
	m.header, m.counts, m.counted = m.object[:s.header()], counts, true
}
