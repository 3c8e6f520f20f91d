package unwind

// Operations of DWARF expressions (DWARF 5, section 7.7.1).
const (
	exprDeref     = 0x06
	exprAnd       = 0x1a
	exprPlus      = 0x22
	exprPlusConst = 0x23
	exprShl       = 0x24
	exprGE        = 0x2a
	exprLit0      = 0x30
	exprBReg0     = 0x70
)

// cfaOf recognises the expressions that compilers, assembler code and linkers use for a CFA:
//
//	breg N; deref [; plus_uconst M]              the stack was realigned, or its old end was saved
//	breg rsp 8; breg rip 0; lit15; and; litN; ge; lit3; shl; plus      an entry of a PLT
func cfaOf(expr []byte) cfa {
	if n, ok := pltOf(expr); ok {
		return cfa{form: byPLT, add: n}
	}
	r := reader{data: expr}
	c := cfa{form: byDeref}
	var ok bool
	if c.reg, c.offset, ok = breg(&r); !ok || r.uint(1) != exprDeref {
		return cfa{form: byOther}
	}
	if r.more() {
		if r.uint(1) != exprPlusConst {
			return cfa{form: byOther}
		}
		c.add = int64(r.uleb())
	}
	if r.bad || r.more() {
		return cfa{form: byOther}
	}
	return c
}

// pltOf returns from which last hex digit of its address on an entry of a PLT has pushed a word.
func pltOf(expr []byte) (n int64, ok bool) {
	if len(expr) != 11 {
		return 0, false
	}
	n = int64(expr[6]) - exprLit0
	return n, n > 0 && n < 16 && string(expr[:6]) == string([]byte{exprBReg0 + regRSP, 8, exprBReg0 + regRA, 0,
		exprLit0 + 15, exprAnd}) && string(expr[7:]) == string([]byte{exprGE, exprLit0 + 3, exprShl, exprPlus})
}

// placeOf recognises the address of a saved register: breg N.
func placeOf(expr []byte) saved {
	r := reader{data: expr}
	reg, offset, ok := breg(&r)
	if !ok || r.more() {
		return saved{how: otherwise}
	}
	return saved{how: atPlace, reg: reg, offset: offset}
}

// breg reads a register and an offset.
func breg(r *reader) (reg uint8, offset int64, ok bool) {
	op := r.uint(1)
	offset = r.sleb()
	return uint8(op - exprBReg0), offset, !r.bad && op >= exprBReg0 && op < exprBReg0+32
}
