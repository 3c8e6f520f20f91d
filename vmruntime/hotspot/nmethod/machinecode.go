package nmethod

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
)

// Memory that Codes keep of machine code at most, and the most of one compilation.
const (
	textBytes    = 4 << 20
	maxTextBytes = 1 << 20
)

// A text is the machine code of a compilation. What HotSpot patches in it (targets of calls, the
// jump at the entry of what is not used any more) is not what AtEdge looks at.
type text []byte

func (t text) Bytes() int { return 64 + len(t) }

// AtEdge reports whether a sampled site is in a prologue or an epilogue. The code of a compilation
// is read once.
func (p *Codes) AtEdge(site vmruntime.Site) (bool, error) {
	if p.Build.Machine != elf.EM_X86_64 {
		return false, errors.New("prologues and epilogues are not known on " + p.Build.Machine.String() + " yet")
	}
	c, err := p.codeAt(site)
	if err != nil {
		return false, err
	}
	offset := site.PC - c.begin
	if offset < uint64(max(c.frameComplete, 0)) {
		return true, nil
	}
	version := site.Version & codecache.VersionMask
	code, ok := p.texts.Get(version)
	if !ok || uint64(len(code)) != c.end-c.begin {
		if code, err = p.readText(version, c); err != nil {
			return false, err
		}
		p.texts.Add(version, code)
	}
	return inEpilogue(code, int(offset)), nil
}

// readText reads the code of a compilation, if it is still there.
func (p *Codes) readText(version uint32, c *code) (text, error) {
	if c.end-c.begin > maxTextBytes {
		return nil, fmt.Errorf("%d bytes of code: %w", c.end-c.begin, vmruntime.ErrMalformed)
	}
	code, readErr := p.Memory.Bytes(c.begin, c.end-c.begin)
	addr, err := p.Cache.Find(c.begin)
	if err != nil {
		return nil, err
	}
	if _, b, err := p.readHeader(addr, version); err != nil {
		return nil, err
	} else if b.Begin != c.begin || b.End != c.end {
		return nil, vmruntime.ErrStale
	}
	return code, readErr
}

// x86-64 instructions of epilogues: first bytes.
const (
	insPopBP    = 0x5d
	insRet      = 0xc3
	insLeave    = 0xc9
	insREX      = 0x48 // 64-bit operands
	insREXB     = 0x49 // the same with r8 to r15
	insREXB32   = 0x41 // 32-bit operands, with r8 to r15
	insTwoBytes = 0x0f
)

// inEpilogue reports whether the frame is torn down at an offset in compiled code, or only rbp is
// left of it: from behind add rsp to ret. What C1 and C2 of JDK 8 to 25 emit there differs only in
// the poll for safepoints before ret. The rules are those by which the kernel side finds return
// addresses.
func inEpilogue(code text, offset int) bool {
	at := func(i int) byte { // the byte i behind the sampled instruction's first
		if i += offset; i >= 0 && i < len(code) {
			return code[i]
		}
		return 0
	}
	removed := at(-5) == insREX && at(-4) == 0x83 && at(-3) == 0xc4 || // add rsp, N; pop rbp are done
		at(-8) == insREX && at(-7) == 0x81 && at(-6) == 0xc4
	return at(0) == insRet || at(0) == insPopBP ||
		at(-1) == insPopBP && removed ||
		// A native method's end: leave; then test [r15 + M], 1 from JDK 22 on; cmp [r15 + M], 0;
		// jne; ret.
		at(-1) == insLeave && at(0) == insREXB32 && at(1) == 0xf6 && at(2) == 0x47 ||
		at(0) == insREXB && at(1) == 0x83 && at(2) == 0x7f && at(5) == insTwoBytes && at(11) == insRet ||
		at(0) == insREXB && at(1) == 0x81 && at(2) == 0x7f && at(8) == insTwoBytes && at(14) == insRet ||
		// The end of the poll: ja from JDK 16 on, test [r10], eax from 10 to 15, test [rip + M],
		// eax from 8 to 15.
		at(0) == insTwoBytes && at(1)&0xf0 == 0x80 && at(6) == insRet ||
		at(0) == insREXB32 && at(1) == 0x85 && at(3) == insRet ||
		at(0) == 0x85 && at(1) == 0x05 && at(6) == insRet
}

const (
	callBytes     = 5 // call rel32 on x86-64, the only instruction that both compilers call Java methods with
	callOpcode    = 0xe8
	callOffsetLen = 4
)

// calledBefore returns where the call goes that returns to offset in the code that begins at begin,
// if there is one.
func calledBefore(instructions []byte, begin uint64, offset int32) (to uint64, ok bool) {
	from := int(offset) - callBytes
	if from < 0 || int(offset) > len(instructions) || instructions[from] != callOpcode {
		return 0, false
	}
	distance := int32(binary.LittleEndian.Uint32(instructions[from+1:][:callOffsetLen]))
	return begin + uint64(offset) + uint64(int64(distance)), true
}

// conditionalJumps finds instructions that are encoded as 0F 80 to 0F 8F and a distance of 32 bits:
// near conditional jumps of x86-64. It does not decode what is before them; that something else
// looks like one and leads into the same code is rare. end is the offset behind the jump.
func conditionalJumps(code []byte, found func(end, to int32)) {
	const opcode, size = 2, 6
	for i := 0; i+size <= len(code); i++ {
		if code[i] != 0x0f || code[i+1]&0xf0 != 0x80 {
			continue
		}
		end := int64(i + size)
		if to := end + int64(int32(binary.LittleEndian.Uint32(code[i+opcode:]))); to >= 0 && to < int64(len(code)) {
			found(int32(end), int32(to))
		}
	}
}
