package bpf

// What values are asked of a probe. Layouts and units: value.bpf.h.
type (
	ProbedValues = ProbeProbedValues
	ProbedValue  = ProbeProbedValue
	ValueOperand = ProbeValueOperand
)

// Forms of a value.
const (
	ValueNumber = uint8(ProbeValueFormVALUE_NUMBER)
	ValueText   = uint8(ProbeValueFormVALUE_TEXT)   // bytes at an address
	ValueSymbol = uint8(ProbeValueFormVALUE_SYMBOL) // HotSpot: a Symbol
	ValueKlass  = uint8(ProbeValueFormVALUE_KLASS)  // HotSpot: the name of a Klass
	ValueClass  = uint8(ProbeValueFormVALUE_CLASS)  // HotSpot: the name of an object's Klass
)

// MaxObservedValues bounds the values of an observation, MaxObservedText the bytes of text that
// they share, and MaxFollowed the pointers that lead to one: MAX_OBSERVED_VALUES,
// MAX_OBSERVED_TEXT, MAX_FOLLOWED.
const (
	MaxObservedValues = len(ProbeProbedValues{}.Values)
	MaxObservedText   = 480
	MaxFollowed       = len(ProbeProbedValue{}.Offsets)
)

// Failed reports that value i of ObservedValues could not be read, or that there is none.
func (o *Observation) Failed(i int) bool {
	return i < 0 || i >= int(o.Seen.Count) || o.Seen.Failed&(1<<i) != 0
}

// ValueText is value i of ObservedValues, if it is a text, and whether it is only the beginning of
// it. It is nil if the value could not be read, and points into the record.
func (o *Observation) ValueText(i int) (text []byte, cut bool) {
	if o.Failed(i) {
		return nil, false
	}
	begin, length := o.Seen.Values[i]>>32, o.Seen.Values[i]&0xffffffff
	if begin+length > uint64(len(o.Text)) {
		return nil, false
	}
	return o.Text[begin : begin+length : begin+length], o.Seen.Cut&(1<<i) != 0
}
