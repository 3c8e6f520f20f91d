package probesite

type opcodeMap uint8

const (
	mapOneByte opcodeMap = iota
	map0F                // 1, as VEX and EVEX count
	map0F38
	map0F3A
	map4 // EVEX: APX, not decoded
	map5 // EVEX: half-precision floating point
	map6
)

// What follows an opcode, one letter for each of 256 (Intel SDM vol. 2, appendix A, for 64-bit
// mode):
//
//	.  nothing            m  ModRM            x  not valid
//	b  8-bit immediate    M  ModRM, then b    p  not an opcode: a prefix, or the way into another map
//	z  32 bits, 16 with an operand size prefix
//	Z  ModRM, then z      v  z, or 64 bits with REX.W
//	w  16 bits            e  16 and 8 bits    o  an address of 64 bits, 32 with an address size prefix
//	j  32-bit branch      g  ModRM, then b if its reg field is 0 or 1 (f6)    G  the same with z (f7)
//	r  ModRM whose r/m field is a register whatever mod says (moves to and from control registers)
const oneByte = "" +
	"mmmmbzxxmmmmbzxp" + // 00
	"mmmmbzxxmmmmbzxx" + // 10
	"mmmmbzpxmmmmbzpx" + // 20
	"mmmmbzpxmmmmbzpx" + // 30
	"pppppppppppppppp" + // 40: REX
	"................" + // 50
	"xxpmppppzZbM...." + // 60
	"bbbbbbbbbbbbbbbb" + // 70
	"MZxMmmmmmmmmmmmm" + // 80
	"..........x....." + // 90
	"oooo....bz......" + // a0
	"bbbbbbbbvvvvvvvv" + // b0
	"MMw.ppMZe.w..bx." + // c0
	"mmmmxxx.mmmmmmmm" + // d0: d5 is REX2, which no compiler here makes
	"bbbbbbbbjjxb...." + // e0
	"p.pp..gG......mm" //   f0

// twoByte is the map behind 0f.
const twoByte = "" +
	"mmmmx.....x.xm.M" + // 00
	"mmmmmmmmmmmmmmmm" + // 10
	"rrrrxxxxmmmmmmmm" + // 20
	"......x.pxpxxxxx" + // 30
	"mmmmmmmmmmmmmmmm" + // 40
	"mmmmmmmmmmmmmmmm" + // 50
	"mmmmmmmmmmmmmmmm" + // 60
	"MMMMmmm.xmxxmmmm" + // 70
	"jjjjjjjjjjjjjjjj" + // 80
	"mmmmmmmmmmmmmmmm" + // 90
	"...mMmxx...mMmmm" + // a0
	"mmmmmmmmmmMmmmmm" + // b0
	"mmMmMMMm........" + // c0
	"mmmmmmmmmmmmmmmm" + // d0
	"mmmmmmmmmmmmmmmm" + // e0
	"mmmmmmmmmmmmmmmm" //   f0

// The maps behind 0f 38 and 0f 3a, and those of VEX and EVEX, are uniform: see layoutOf.

// layoutOf returns the letter of an opcode.
func layoutOf(m opcodeMap, extended bool, opcode byte) byte {
	if extended {
		return extendedLayout(m, opcode)
	}
	switch m {
	case mapOneByte:
		return oneByte[opcode]
	case map0F:
		return twoByte[opcode]
	case map0F38:
		return 'm'
	default:
		return 'M' // 0f 3a
	}
}

// extendedLayout is layoutOf for VEX and EVEX (Intel SDM vol. 2, appendix A, instructions whose
// name begins with v or k, and those of BMI). In map 1 shifts by a constant, comparisons, inserts,
// extracts and shuffles have an immediate.
func extendedLayout(m opcodeMap, opcode byte) byte {
	switch m {
	case map0F:
		switch opcode {
		case 0x70, 0x71, 0x72, 0x73, 0xc2, 0xc4, 0xc5, 0xc6:
			return 'M'
		case 0x77: // vzeroupper, vzeroall
			return '.'
		}
		return 'm'
	case map0F38, map5, map6:
		return 'm'
	case map0F3A:
		return 'M'
	}
	return 'x'
}
