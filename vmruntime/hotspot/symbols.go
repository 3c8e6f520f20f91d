package hotspot

// symbols reads Symbols (src/hotspot/share/oops/symbol.hpp), the strings that the VM shares: a length in 16 bits, and
// as many bytes of modified UTF-8. Those that cannot be read are absent; what is longer than maxNameBytes is cut.
func (r methodReader) symbols(addrs []uint64) (map[uint64]string, error) {
	const guess = 64 // bytes to read at first: most symbols are shorter
	var heads, tails batch
	addrs = distinct(addrs)
	for _, addr := range addrs {
		heads.add(addr, min(guess, pageSize-addr%pageSize)) // not into a page that may be missing
	}
	if err := heads.read(r.mem); err != nil {
		return nil, err
	}
	found := make(map[uint64]string, len(addrs))
	body := uint64(r.schema.symbolBody.offset)
	var long []uint64
	for i, addr := range addrs {
		head, ok := heads.bytes(i)
		if !ok || r.schema.symbolLength.end() > uint64(len(head)) {
			continue
		}
		length := min(r.schema.symbolLength.of(head)>>r.schema.symbolLengthShift, maxNameBytes)
		if body+length <= uint64(len(head)) {
			found[addr] = cleanName(head[body : body+length])
			continue
		}
		tails.add(addr+body, length)
		long = append(long, addr)
	}
	if err := tails.read(r.mem); err != nil {
		return nil, err
	}
	for i, addr := range long {
		if text, ok := tails.bytes(i); ok {
			found[addr] = cleanName(text)
		}
	}
	return found, nil
}
