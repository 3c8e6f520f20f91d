package hotspot

// A Generation is how long an object has lived, by the part of the heap that it is in.
type Generation uint8

const (
	GenerationUnknown   Generation = iota
	GenerationYoung                // eden or survivor, where they are not told apart
	GenerationEden                 // no collection yet
	GenerationSurvivor             // some
	GenerationOld                  // many
	GenerationHumongous            // too large for a region, and never young
)

// String is the generation for labels: "old".
func (g Generation) String() string {
	names := [...]string{"unknown", "young", "eden", "survivor", "old", "humongous"}
	if int(g) >= len(names) {
		g = 0
	}
	return names[g]
}

// Generation says in which generation an address in the heap is now: at most two reads of a word. It is unknown if addr
// is not in the heap, in memory that is free, or if the collector has no generations that can be told.
func (p *Process) Generation(addr uint64) (Generation, error) {
	l := &p.layout.Objects.Heap
	if !p.layout.HasObjects || !l.contains(addr) {
		return GenerationUnknown, nil
	}
	switch l.Generations {
	case GenerationsByBounds:
		if addr >= l.YoungLow && addr < l.YoungHigh {
			return GenerationYoung, nil
		}
		return GenerationOld, nil
	case GenerationsByRegion:
		region, err := p.word(l.RegionTable + wordSize*(addr>>l.RegionShift))
		if err != nil || region == 0 {
			return GenerationUnknown, err
		}
		tag, err := p.bytes(region+uint64(l.RegionTag), 4)
		if err != nil {
			return GenerationUnknown, err
		}
		return l.generation(uint32(number(tag))), nil
	}
	return GenerationUnknown, nil
}

// generation says what a region's tag means.
func (l *HeapLayout) generation(tag uint32) Generation {
	switch {
	case tag == l.EdenTag:
		return GenerationEden
	case tag == l.SurvivorTag:
		return GenerationSurvivor
	case tag&l.HumongousMask != 0:
		return GenerationHumongous
	case tag&l.OldMask != 0:
		return GenerationOld
	}
	return GenerationUnknown
}
