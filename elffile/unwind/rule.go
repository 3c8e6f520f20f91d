package unwind

import "fmt"

// A Rule says how a frame is left:
//
//	31..28  27 ....... 16        15 .......... 0
//	kind    caller's rbp         operand
//
// Offsets are numbers of words of 8 bytes. Operands are, by kind:
//
//	ByRSP, ByRBP          CFA = register + 8 * operand
//	DerefRSP, DerefRBP    CFA = *(register + 8 * (operand >> 4, signed)) + 8 * (operand & 15)
//	PLT                   CFA = rsp + 8, and 8 more if the last hex digit of pc is the operand or greater
//
// The caller's rbp is at CFA - 8 * n, where n is the field. Three values are not such numbers:
// SameRBP, RBPAtRBP and NoRBP. BPF programs have the same constants (enum rule_kind).
type Rule uint32

// A Kind is the upper part of a Rule.
type Kind uint8

// The kinds.
const (
	// None: nothing is known of this code. Its frame pointer may lead on.
	None Kind = iota
	ByRSP
	ByRBP
	DerefRSP
	DerefRBP
	PLT
	// Signal: the frame of the function that returns from a signal handler; the kernel left the
	// interrupted registers at rsp.
	Signal
	// Root: no caller, by the file's own account.
	Root
	// Unsupported: the rule needs other registers, or an expression that no rule can state.
	Unsupported
	kinds
)

// Values of the field for the caller's rbp that are no offsets.
const (
	SameRBP  = 0     // the frame has not changed it
	RBPAtRBP = 0xffe // rbp points to it
	NoRBP    = 0xfff // it is lost
)

// Bounds of the fields.
const (
	maxSaved   = 0xffd
	maxOperand = 0xffff
	minDeref   = -0x800
	maxDeref   = 0x7ff
	maxAdd     = 0xf
)

func rule(k Kind, saved, operand uint32) Rule { return Rule(uint32(k)<<28 | saved<<16 | operand) }

// Kind is the kind of the rule.
func (r Rule) Kind() Kind { return Kind(r >> 28) }

// Saved is the field for the caller's rbp.
func (r Rule) Saved() int { return int(r >> 16 & 0xfff) }

// Operand is what CFA is computed with; see Rule.
func (r Rule) Operand() uint16 { return uint16(r) }

var kindNames = [kinds]string{
	None: "none", ByRSP: "rsp", ByRBP: "rbp", DerefRSP: "rsp", DerefRBP: "rbp", PLT: "plt", Signal: "signal",
	Root: "root", Unsupported: "unsupported",
}

// String is for tests: "rsp+24 c-16" is a frame of which the CFA is rsp + 24, and which has the
// caller's rbp at CFA - 16.
func (r Rule) String() string {
	var text string
	switch r.Kind() {
	case ByRSP, ByRBP:
		text = fmt.Sprintf("%s+%d", kindNames[r.Kind()], 8*int(r.Operand()))
	case DerefRSP, DerefRBP:
		text = fmt.Sprintf("*(%s%+d)+%d", kindNames[r.Kind()], 8*(int(int16(r.Operand()))>>4), 8*(r.Operand()&maxAdd))
	default:
		if r.Kind() >= kinds {
			return fmt.Sprintf("rule %#x", uint32(r))
		}
		return kindNames[r.Kind()]
	}
	switch r.Saved() {
	case SameRBP:
		return text
	case RBPAtRBP:
		return text + " *rbp"
	case NoRBP:
		return text + " lost"
	}
	return fmt.Sprintf("%s c-%d", text, 8*r.Saved())
}
