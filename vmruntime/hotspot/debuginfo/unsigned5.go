package debuginfo

// UNSIGNED5 is HotSpot's code for small numbers (src/hotspot/share/utilities/unsigned5.hpp): one to
// five bytes, the lowest first, each worth 64 times the one before. A byte of 192 or more says that
// another one follows, except in fifth place. Numbers below 192 take one byte.
//
// From JDK 20 on (JDK-8292758) no byte is zero, so that zero can end a list: every byte carries its
// value plus one.

const (
	unsigned5High  = 192 // bytes from here on have a successor
	unsigned5Bytes = 5
)

// A Unsigned5 reads UNSIGNED5 numbers. After a read past the end, failed is true and every number
// is 0.
type Unsigned5 struct {
	Data   []byte
	Bias   uint32 // 1 from JDK 20 on, else 0
	Failed bool
}

// Next cuts one number off the stream.
func (s *Unsigned5) Next() uint32 {
	var sum uint32
	for i := range unsigned5Bytes {
		if i >= len(s.Data) || uint32(s.Data[i]) < s.Bias {
			break
		}
		b := s.Data[i]
		sum += (uint32(b) - s.Bias) << (6 * i) // the fifth byte may overflow: HotSpot lets it wrap, too
		if b < unsigned5High || i == unsigned5Bytes-1 {
			s.Data = s.Data[i+1:]
			return sum
		}
	}
	s.Data, s.Failed = nil, true
	return 0
}

// nextSigned cuts off one number that was folded into an unsigned one, the sign in the lowest bit.
func (s *Unsigned5) nextSigned() int32 {
	n := s.Next()
	return int32(n>>1) ^ -int32(n&1)
}
