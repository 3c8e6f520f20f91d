package bpf

// What hotspot.h defines of the seen_methods table.
const (
	seenMethods       = 1 << 14
	seenMethodsProbed = 4
	seenMethodsHash   = 0x9e3779b97f4a7c15
)

// ClassEpochChange is what is added to Epochs.Classes when a walk meets a Method structure as
// another method than before. What is below it counts classes that were unloaded.
const ClassEpochChange = 1 << 20

// SeenMethod returns what the method of a VM was when a walk met it last; false if none did, or if
// the table forgot it.
func (o *Objects) SeenMethod(serial uint32, method uint64) (SeenMethod, bool) {
	first := uint32((method ^ uint64(serial)<<48) * seenMethodsHash >> 40)
	for i := range uint32(seenMethodsProbed) {
		var m SeenMethod
		at := (first + i) & (seenMethods - 1)
		if o.SeenMethods.Lookup(at, &m) == nil && m.Serial == serial && m.Method == method {
			return m, true
		}
	}
	return SeenMethod{}, false
}
