package unwind

// Numbers of registers in DWARF, on x86-64 (System V ABI, figure 3.36).
const (
	regRBP = 6
	regRSP = 7
	regRA  = 16
)

// Call frame instructions (DWARF 5, section 7.24, and the LSB core specification for those of GNU).
const (
	opAdvance = 0x40 // the low six bits are an operand of this and of the next two
	opOffset  = 0x80
	opRestore = 0xc0

	opNop              = 0x00
	opSetLoc           = 0x01
	opAdvance1         = 0x02
	opAdvance2         = 0x03
	opAdvance4         = 0x04
	opOffsetExtended   = 0x05
	opRestoreExtended  = 0x06
	opUndefined        = 0x07
	opSameValue        = 0x08
	opRegister         = 0x09
	opRememberState    = 0x0a
	opRestoreState     = 0x0b
	opDefCFA           = 0x0c
	opDefCFARegister   = 0x0d
	opDefCFAOffset     = 0x0e
	opDefCFAExpression = 0x0f
	opExpression       = 0x10
	opOffsetExtendedSF = 0x11
	opDefCFASF         = 0x12
	opDefCFAOffsetSF   = 0x13
	opValOffset        = 0x14
	opValOffsetSF      = 0x15
	opValExpression    = 0x16
	opArgsSize         = 0x2e
	opNegativeOffset   = 0x2f
)

// How a register's value in the caller is found.
type how uint8

const (
	same    how = iota
	atCFA       // at CFA + offset
	atPlace     // at a register + offset
	undefined
	otherwise // in a way that no rule states
)

// A saved register.
type saved struct {
	how    how
	reg    uint8 // of atPlace
	offset int64
}

// How the CFA is found.
type cfa struct {
	form   form
	reg    uint8
	offset int64 // added to the register
	add    int64 // added to what is there; of plt, the operand
}

type form uint8

const (
	byRegister form = iota
	byDeref
	byPLT
	byOther
)

// A state is what is known at one address: of the registers only those that a walk follows.
type state struct {
	cfa     cfa
	rbp, ra saved
	returns uint8 // the register of the return address
}

// A machine executes call frame instructions.
type machine struct {
	*cie
	builder    *builder
	state      state
	first      state // what opRestore restores to
	remembered []state
	loc        uint64 // from the table's base
	emit       bool   // the instructions are a function's: they make rows
	begun      bool   // the function has a row
}

// run executes all instructions that r has, of code that ends at end.
func (m *machine) run(r *reader, end uint64) error {
	for r.more() {
		if err := m.builder.step(); err != nil {
			return err
		}
		if err := m.execute(r); err != nil {
			return err
		}
		if r.bad {
			return errMalformed
		}
		if m.loc >= end {
			if !m.emit {
				return errMalformed
			}
			m.loc = end - 1 // what follows is of no code
			return nil
		}
	}
	return nil
}

func (m *machine) execute(r *reader) error {
	op := byte(r.uint(1))
	low := uint64(op & 0x3f)
	switch op & 0xc0 {
	case opAdvance:
		return m.advance(low)
	case opOffset:
		m.save(low, saved{how: atCFA, offset: int64(r.uleb()) * m.dataAlign})
		return nil
	case opRestore:
		m.restore(low)
		return nil
	}
	switch op {
	case opNop:
	case opSetLoc:
		addr, err := r.pointer(m.encoding)
		if err != nil {
			return err
		}
		if addr-m.builder.base < m.loc || addr-m.builder.base > maxOffset {
			return errMalformed
		}
		m.move(addr - m.builder.base)
	case opAdvance1:
		return m.advance(r.uint(1))
	case opAdvance2:
		return m.advance(r.uint(2))
	case opAdvance4:
		return m.advance(r.uint(4))
	case opOffsetExtended:
		reg := r.uleb()
		m.save(reg, saved{how: atCFA, offset: int64(r.uleb()) * m.dataAlign})
	case opOffsetExtendedSF:
		reg := r.uleb()
		m.save(reg, saved{how: atCFA, offset: r.sleb() * m.dataAlign})
	case opNegativeOffset:
		reg := r.uleb()
		m.save(reg, saved{how: atCFA, offset: -int64(r.uleb()) * m.dataAlign})
	case opRestoreExtended:
		m.restore(r.uleb())
	case opUndefined:
		m.save(r.uleb(), saved{how: undefined})
	case opSameValue:
		m.save(r.uleb(), saved{})
	case opRegister:
		reg := r.uleb()
		r.uleb()
		m.save(reg, saved{how: otherwise})
	case opValOffset, opValOffsetSF:
		reg := r.uleb()
		r.uleb()
		m.save(reg, saved{how: otherwise})
	case opRememberState:
		if len(m.remembered) >= maxStates {
			return errUnsupported
		}
		m.remembered = append(m.remembered, m.state)
	case opRestoreState:
		n := len(m.remembered)
		if n == 0 {
			return errMalformed
		}
		m.state, m.remembered = m.remembered[n-1], m.remembered[:n-1]
	case opDefCFA:
		reg := r.uleb()
		m.state.cfa = cfa{reg: number(reg), offset: int64(r.uleb())}
	case opDefCFASF:
		reg := r.uleb()
		m.state.cfa = cfa{reg: number(reg), offset: r.sleb() * m.dataAlign}
	case opDefCFARegister:
		m.state.cfa = cfa{reg: number(r.uleb()), offset: m.state.cfa.offset}
	case opDefCFAOffset:
		m.state.cfa.offset = int64(r.uleb())
	case opDefCFAOffsetSF:
		m.state.cfa.offset = r.sleb() * m.dataAlign
	case opDefCFAExpression:
		m.state.cfa = cfaOf(r.bytes(r.uleb()))
	case opExpression:
		reg := r.uleb()
		m.save(reg, placeOf(r.bytes(r.uleb())))
	case opValExpression:
		reg := r.uleb()
		r.skip(r.uleb())
		m.save(reg, saved{how: otherwise})
	case opArgsSize:
		r.uleb()
	default:
		return errUnsupported
	}
	return nil
}

// number is a register's, or one that no rule has.
func number(reg uint64) uint8 { return uint8(min(reg, 0xff)) }

// advance goes on by that many units of code.
func (m *machine) advance(by uint64) error {
	if m.codeAlign > maxOffset || by*m.codeAlign > maxOffset {
		return errMalformed
	}
	m.move(m.loc + by*m.codeAlign)
	return nil
}

// move goes on to an address: the state is known up to there.
func (m *machine) move(to uint64) {
	if m.emit && to > m.loc {
		m.row()
	}
	m.loc = to
}

// row adds a row for where the machine stands.
func (m *machine) row() {
	b, r := m.builder, m.rule()
	if n := len(b.rows); n > 0 && uint64(b.rows[n-1].Offset) < m.loc && b.rows[n-1].Rule == r && m.begun {
		return
	}
	m.begun = true
	b.rows = append(b.rows, Row{uint32(m.loc), r})
}

func (m *machine) save(reg uint64, how saved) {
	switch reg {
	case regRBP:
		m.state.rbp = how
	case regRA:
		m.state.ra = how
	}
}

func (m *machine) restore(reg uint64) {
	switch reg {
	case regRBP:
		m.state.rbp = m.first.rbp
	case regRA:
		m.state.ra = m.first.ra
	}
}

// Where the kernel leaves the interrupted registers, from rsp of the function that returns from a
// signal handler (struct ucontext of arch/x86/include/uapi/asm/ucontext.h and sigcontext.h).
const (
	signalRBP = 120
	signalRSP = 160
	signalRA  = 168
)

// rule is the rule of the state.
func (m *machine) rule() Rule {
	s := &m.state
	if s.ra.how == undefined {
		return rule(Root, 0, 0)
	}
	if m.signal {
		if s.cfa == (cfa{form: byDeref, reg: regRSP, offset: signalRSP}) &&
			s.ra == (saved{how: atPlace, reg: regRSP, offset: signalRA}) &&
			s.rbp == (saved{how: atPlace, reg: regRSP, offset: signalRBP}) {
			return rule(Signal, 0, 0)
		}
		return rule(Unsupported, 0, 0)
	}
	if s.ra != (saved{how: atCFA, offset: -8}) {
		return rule(Unsupported, 0, 0)
	}
	return s.cfa.rule(s.rbp)
}

func (c cfa) rule(rbp saved) Rule {
	where, ok := rbp.field()
	kind, operand := None, uint32(0)
	switch {
	case !ok || c.form == byOther:
	case c.form == byPLT && where == SameRBP:
		kind, operand = PLT, uint32(c.add)
	case c.reg != regRSP && c.reg != regRBP || c.offset%8 != 0 || c.add%8 != 0:
	case c.form == byRegister && c.offset >= 0 && c.offset/8 <= maxOperand:
		kind, operand = ByRSP, uint32(c.offset/8)
		if c.reg == regRBP {
			kind = ByRBP
		}
	case c.form == byDeref && c.offset/8 >= minDeref && c.offset/8 <= maxDeref && c.add >= 0 && c.add/8 <= maxAdd:
		kind, operand = DerefRSP, uint32(c.offset/8)&0xfff<<4|uint32(c.add/8)
		if c.reg == regRBP {
			kind = DerefRBP
		}
	}
	if kind == None {
		return rule(Unsupported, 0, 0)
	}
	return rule(kind, where, operand)
}

// field is what a rule says of the caller's rbp.
func (s saved) field() (field uint32, ok bool) {
	switch s.how {
	case same:
		return SameRBP, true
	case undefined:
		return NoRBP, true
	case atCFA:
		n := -s.offset / 8
		return uint32(n), s.offset%8 == 0 && n > 0 && n <= maxSaved
	case atPlace:
		return RBPAtRBP, s.reg == regRBP && s.offset == 0
	}
	return 0, false
}
