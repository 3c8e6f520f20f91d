package cpython

// A lineFormat is how a line table is written.
type lineFormat uint8

const (
	linesByDelta    lineFormat = iota // co_lnotab of 3.9
	linesByRange                      // co_linetable of 3.10 (PEP 626)
	linesByLocation                   // co_linetable of 3.11 and later (Objects/locations.md)
)

func (v version) lineFormat() lineFormat {
	switch m := v.minor(); {
	case m < 10:
		return linesByDelta
	case m < 11:
		return linesByRange
	}
	return linesByLocation
}

// unitSize is the size of an instruction without its operands' caches, in bytes.
const unitSize = 2

// lineAt is the line of the instruction with that index, as tracebacks show it; 0 if it has none.
// An index of -1 stands for what is before the first instruction. first is the line on which the
// code begins.
func lineAt(table []byte, format lineFormat, first int32, index int) int {
	if index < 0 {
		return max(int(first), 0)
	}
	var line int64
	switch format {
	case linesByDelta:
		line = deltaLine(table, int64(first), unitSize*index)
	case linesByRange:
		line = rangeLine(table, int64(first), unitSize*index)
	default:
		line = locationLine(table, int64(first), index)
	}
	if line < 0 || line > maxLine {
		return 0
	}
	return int(line)
}

// maxLine is the largest number of a line: CPython's are of type int.
const maxLine = 1<<31 - 1

// deltaLine reads pairs of bytes: by how much the address grows, and the line behind that.
func deltaLine(table []byte, line int64, address int) int64 {
	at := 0
	for ; len(table) >= 2; table = table[2:] {
		if at += int(table[0]); at > address {
			break
		}
		line += int64(int8(table[1]))
	}
	return line
}

// rangeLine reads pairs of bytes: how many bytes of code a range has, and by how much its line is
// greater than that of the last range that had one.
func rangeLine(table []byte, line int64, address int) int64 {
	const none = -128
	end := 0
	for ; len(table) >= 2; table = table[2:] {
		delta := int8(table[1])
		if delta != none {
			line += int64(delta)
		}
		if end += int(table[0]); address < end {
			if delta == none {
				return 0
			}
			return line
		}
	}
	return 0
}

// locationLine reads entries. The first byte of each, and no other, has the highest bit set; the
// next four say which form the entry has, and the last three how many instructions it is of.
func locationLine(table []byte, line int64, index int) int64 {
	const (
		begins  = 0x80
		oneLine = 10 // to 12: on the same line, the next one, or the one after that
		noRange = 13 // lines only
		long    = 14
		none    = 15
	)
	end := 0
	for len(table) > 0 {
		b := table[0]
		if b&begins == 0 {
			return 0
		}
		size := 1
		for size < len(table) && table[size]&begins == 0 {
			size++
		}
		form := b >> 3 & 15
		switch form {
		case noRange, long:
			line += signedNumber(table[1:size])
		case oneLine, oneLine + 1, oneLine + 2:
			line += int64(form - oneLine)
		}
		if end += int(b&7) + 1; index < end {
			if form == none {
				return 0
			}
			return line
		}
		table = table[size:]
	}
	return 0
}

// signedNumber decodes a number of six bits a byte, least significant first; the lowest bit is the
// sign. Bit 6 says that another byte follows.
func signedNumber(b []byte) int64 {
	var n uint64
	for i, c := range b {
		if i == 6 { // numbers have 32 bits
			break
		}
		n |= uint64(c&0x3f) << (6 * i)
		if c&0x40 == 0 {
			break
		}
	}
	if n&1 != 0 {
		return -int64(n >> 1)
	}
	return int64(n >> 1)
}
