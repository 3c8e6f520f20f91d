package vmtest

// Unsigned5 is the reference: the loop of UNSIGNED5's definition, written the other way around.
func Unsigned5(n, bias uint32) []byte {
	var out []byte
	const (
		low   = 192 // values of a last byte, without the bias
		base  = 64
		bytes = 5 // the most
	)
	limit := uint32(low) - bias
	for len(out) < bytes-1 && n >= limit {
		n -= limit
		out = append(out, byte(low+n%base))
		n /= base
	}
	return append(out, byte(n+bias))
}
