package probesite

import (
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// text is an instruction for people: "sub $0x18,%rsp", or its bytes where x86asm does not know it.
func text(code []byte) string {
	i, err := Decode(code)
	if err != nil {
		return "an unknown instruction"
	}
	known, ok := operands(code)
	if !ok {
		return fmt.Sprintf("instruction % x", code[:i.Len])
	}
	return x86asm.GNUSyntax(known, 0, nil)
}
