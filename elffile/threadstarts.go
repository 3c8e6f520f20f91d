package elffile

import (
	"bytes"
	"debug/elf"
	"slices"
)

// glibc's functions at the bottom of a thread's stack, start_thread and __libc_start_call_main, end
// the thread themselves: by the system call exit in a loop, which no other function has. On x86-64
// the loop is xor %edi,%edi; mov REGISTER,%eax; syscall; jmp to the xor, in all releases since
// 2.34. Distributions strip both names.
var (
	exitLoopBegin = []byte{0x31, 0xff}
	exitLoopEnd   = []byte{0x0f, 0x05, 0xeb, 0xf8}
)

const (
	exitLoop        = 8        // bytes
	maxSearched     = 16 << 20 // bytes of code; libc.so.6 has 1.4 MB
	maxThreadStarts = 16       // glibc has 2
)

// ThreadStarts returns the start addresses of the functions of a C library at which the stacks of
// threads end, ascending. It returns none for any other file, or if their code is unknown.
func (f *File) ThreadStarts(functions *Starts) (starts []uint64) {
	if functions == nil || f.machine != elf.EM_X86_64 {
		return nil
	}
	if found, err := f.FindSymbols("__libc_start_main"); err != nil || len(found) == 0 {
		return nil
	}
	for i := range f.progs {
		p := &f.progs[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD || !executable(p) || p.Filesz > maxSearched ||
			!f.holds(p.Off, p.Filesz) {
			continue
		}
		buf := make([]byte, min(chunkSize, p.Filesz))
		for at := uint64(0); at+exitLoop <= p.Filesz; at += uint64(len(buf)) - exitLoop + 1 {
			chunk := buf[:min(uint64(len(buf)), p.Filesz-at)]
			if f.readFull(chunk, p.Off+at) != nil {
				return nil
			}
			for from := 0; ; {
				next := bytes.Index(chunk[from:], exitLoopEnd)
				if next < 0 {
					break
				}
				from += next
				begin := from - (exitLoop - len(exitLoopEnd))
				if begin >= 0 && bytes.HasPrefix(chunk[begin:], exitLoopBegin) && len(starts) < maxThreadStarts {
					if start, ok := functions.Find(p.Vaddr + at + uint64(begin)); ok {
						starts = append(starts, start)
					}
				}
				from++
			}
			if uint64(len(buf)) < chunkSize {
				break
			}
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts)
}
