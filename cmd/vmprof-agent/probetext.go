package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Bounds on what is shown of hostile names, in columns.
const (
	maxPath      = 4096 // PATH_MAX of linux/limits.h; its end is shown
	maxProbeName = 60
)

// plainText makes a name safe for a terminal: escapes for all but printable ASCII, and an ellipsis for what is too
// long.
func plainText(name string, limit int) string {
	text := strconv.QuoteToASCII(name[:min(len(name), limit)])
	text = strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	if len(name) > limit || len(text) > limit {
		return text[:min(len(text), limit-3)] + "..."
	}
	return text
}

// instructionAt says what stands at an offset of a file, in the words of the usage.
func instructionAt(f io.ReaderAt, machine elf.Machine, offset uint64) string {
	var code [maxInstruction]byte
	n, err := f.ReadAt(code[:], int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return "unreadable"
	}
	return instruction(code[:n], machine)
}

// maxInstruction is the longest that an x86-64 instruction may be, in bytes.
const maxInstruction = 15

// arm64Nop is the NOP that USDT probes stand on there.
var arm64Nop = []byte{0x1f, 0x20, 0x03, 0xd5}

// instruction says what code begins with, in the words of the usage.
func instruction(code []byte, machine elf.Machine) string {
	switch machine {
	case elf.EM_X86_64:
		i, err := probesite.Decode(code)
		switch {
		case err != nil || i.Kind == probesite.Refused:
			return "refused by the kernel"
		case i.Kind == probesite.Nop5 || i.Kind.Emulated():
			return i.Kind.String()
		}
	case elf.EM_AARCH64:
		if bytes.HasPrefix(code, arm64Nop) {
			return probesite.Nop.String()
		}
	}
	return "stepped"
}

// operandText lists operands as the user names them: arg1 u64 rdi, arg2 s32 [rbp-56].
func operandText(args []elffile.Operand) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = fmt.Sprintf("arg%d %s", i+1, placeText(a))
	}
	return strings.Join(words, ", ")
}

// placeText is an operand's size and place: u64 rdi, s32 [rax+rbx*8-56], u8 =7 for a constant.
func placeText(a elffile.Operand) string {
	if a.Err != nil {
		return "?"
	}
	size := fmt.Sprintf("u%d", 8*int(a.Size))
	if a.Size < 0 {
		size = fmt.Sprintf("s%d", -8*int(a.Size))
	}
	switch a.Kind {
	case elffile.OperandReg:
		return size + " " + a.Reg.String()
	case elffile.OperandConst:
		return fmt.Sprintf("%s =%d", size, a.Disp)
	}
	var parts []string
	if a.Reg != elffile.NoReg {
		parts = append(parts, a.Reg.String())
	}
	if a.Index != elffile.NoReg {
		parts = append(parts, fmt.Sprintf("%s*%d", a.Index, a.Scale))
	}
	address := strings.Join(parts, "+")
	if a.Disp != 0 || address == "" {
		address += fmt.Sprintf("%+d", a.Disp)
	}
	return size + " [" + address + "]"
}

// wrap writes text behind an indent, broken at ", " so that lines are narrower than width where that is possible.
func wrap(out io.Writer, indent, text string, width int) {
	line := indent
	for i, word := range strings.SplitAfter(text, ", ") {
		if i > 0 && len(line)+len(strings.TrimRight(word, " ")) >= width {
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = indent + "  "
		}
		line += word
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// leftCut leaves the end of a path, which says more than its beginning.
func leftCut(path string, width int) string {
	const dots = "..."
	if len(path) <= width || width <= len(dots) {
		return path
	}
	return dots + path[len(path)-width+len(dots):]
}
