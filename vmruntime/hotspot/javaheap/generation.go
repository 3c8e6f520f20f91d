package javaheap

// A Generation is how long an object has lived, by the part of the heap that it is in.
type Generation uint8

// Generations of the collectors that have any.
const (
	GenerationUnknown   Generation = iota
	GenerationYoung                // eden or survivor, where they are not distinguished
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

// GenerationOfTag says what a region's tag means.
func (l *HeapLayout) GenerationOfTag(tag uint32) Generation {
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
