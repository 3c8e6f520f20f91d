package probesite

// A listing is a function's code, cut into instructions from its first byte on.
type listing struct {
	start uint64
	code  []byte
	at    []uint32        // offsets of the instructions, ascending
	kinds []Kind          // of them
	joins map[uint32]bool // offsets that a branch of this function goes to
	cut   error           // why instructions end before the code does; nil if they do not. joins may lack some then
}

// list reads and cuts a function. Targets of jumps through a table are not known: compilers point these at the code of a
// case, which is neither a function's first lines nor what tests the result of a call.
func (f *Finder) list(fn function) (*listing, error) {
	code, err := f.code(fn.start, fn.end-fn.start)
	if err != nil {
		return nil, err
	}
	l := &listing{start: fn.start, code: code, joins: map[uint32]bool{}}
	for at := 0; at < len(code); {
		i, err := Decode(code[at:])
		if err != nil {
			l.cut = err // data between instructions, as hand-written assembly has it
			break
		}
		l.at, l.kinds = append(l.at, uint32(at)), append(l.kinds, i.Kind)
		if to, ok := i.target(fn.start + uint64(at)); ok && to-fn.start < uint64(len(code)) {
			l.joins[uint32(to-fn.start)] = true
		}
		at += i.Len
	}
	return l, nil
}

// bytes returns the code from instruction n on.
func (l *listing) bytes(n int) []byte { return l.code[l.at[n]:] }

// address returns that of instruction n.
func (l *listing) address(n int) uint64 { return l.start + uint64(l.at[n]) }

// joined reports whether a branch goes to one of the instructions from..to.
func (l *listing) joined(from, to int) bool {
	for n := from; n <= to; n++ {
		if l.joins[l.at[n]] {
			return true
		}
	}
	return false
}

// end is the offset behind the last instruction that was understood.
func (l *listing) end() uint64 {
	if len(l.at) == 0 {
		return 0
	}
	last := l.at[len(l.at)-1]
	i, _ := Decode(l.code[last:])
	return uint64(last) + uint64(i.Len)
}
