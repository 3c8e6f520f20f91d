package debuginfo

// maxLine is what a class file can say: line numbers there have 16 bits.
const maxLine = 1<<16 - 1

// An entry of a line table. Bytecode indexes and lines wrap on hostile input.
type lineEntry struct{ bci, line int32 }

// next cuts the next entry off the table; more is false at its end.
func (e *lineEntry) next(s *Unsigned5) (more bool) {
	const (
		end    = 0
		escape = 0xff
	)
	if len(s.Data) == 0 || s.Data[0] == end {
		return false
	}
	b := s.Data[0]
	s.Data = s.Data[1:]
	if b == escape {
		e.bci += s.nextSigned()
		e.line += s.nextSigned()
		return !s.Failed
	}
	e.bci += int32(b >> 3)
	e.line += int32(b & 7)
	return true
}

// LineOf finds the source line of a bytecode index in a method's compressed line number table, or
// 0.
//
// The format is that of CompressedLineNumberReadStream
// (src/hotspot/share/code/compressedStream.hpp): a byte of 0 ends the table, 255 is followed by two
// signed UNSIGNED5 differences, any other byte holds five bits of bytecode and three bits of line
// difference. The rule is that of Method::line_number_from_bci: entries need not be in order, as
// javac moves code (finally blocks, loop conditions), so the nearest one before bci counts,
// wherever it is.
func LineOf(table []byte, bci int, bias uint32) int {
	var e, best lineEntry
	best.bci = -1
	for s := (Unsigned5{Data: table, Bias: bias}); e.next(&s); {
		if e.bci >= best.bci && int(e.bci) <= bci {
			best = e
		}
		if int(e.bci) == bci {
			break
		}
	}
	if best.line < 0 || best.line > maxLine {
		return 0
	}
	return int(best.line)
}

// LineTableSize returns how many bytes of data belong to the table that it begins with.
func LineTableSize(data []byte, bias uint32) int {
	var e lineEntry
	s := Unsigned5{Data: data, Bias: bias}
	for e.next(&s) {
	}
	return len(data) - len(s.Data)
}
