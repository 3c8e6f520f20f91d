package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Starts are the start addresses of a file's functions, as far as .eh_frame has them, which a
// stripped file has, too. They are immutable and take four bytes per function.
type Starts struct {
	base  uint64   // what starts counts from
	start []uint32 // ascending
}

// FunctionStarts reads them from the sorted table of .eh_frame_hdr. ErrNotFound if the file has
// none, or one in an encoding that linkers do not write.
func (f *File) FunctionStarts() (*Starts, error) {
	header := f.segmentTyped(elf.PT_GNU_EH_FRAME)
	if header == nil {
		return nil, fmt.Errorf(".eh_frame_hdr: %w", ErrNotFound)
	}
	const entry = 8 // bytes: where a function begins, and where its entry in .eh_frame is
	data, err := f.read(header.Off, header.Filesz, unwindFixed+entry*maxUnwind)
	if err != nil {
		return nil, fmt.Errorf(".eh_frame_hdr: %w", err)
	}
	if !bytes.HasPrefix(data, unwindEncodings) || len(data) < unwindFixed {
		return nil, fmt.Errorf(".eh_frame_hdr in an unusual encoding: %w", ErrNotFound)
	}
	count := uint64(binary.LittleEndian.Uint32(data[8:]))
	if data = data[unwindFixed:]; count > uint64(len(data))/entry {
		return nil, fmt.Errorf(".eh_frame_hdr: %d entries in %d bytes: %w", count, len(data), ErrMalformed)
	}
	s := &Starts{base: f.codeStart(), start: make([]uint32, 0, count)}
	for ; count > 0; count-- {
		at := header.Vaddr + uint64(int64(int32(binary.LittleEndian.Uint32(data))))
		data = data[entry:]
		if at >= s.base && at-s.base <= math.MaxUint32 {
			s.start = append(s.start, uint32(at-s.base))
		}
	}
	slices.Sort(s.start) // linkers sort them
	return s, nil
}

// Find returns the start of the function around addr. Padding after a function, and code without an
// entry, count as the function before it.
func (s *Starts) Find(addr uint64) (start uint64, ok bool) {
	if s == nil || addr < s.base || addr-s.base > math.MaxUint32 {
		return 0, false
	}
	offset := uint32(addr - s.base)
	after := sort.Search(len(s.start), func(i int) bool { return s.start[i] > offset })
	if after == 0 {
		return 0, false
	}
	return s.base + uint64(s.start[after-1]), true
}

// Bytes is the memory of the addresses.
func (s *Starts) Bytes() int64 {
	if s == nil {
		return 0
	}
	return int64(4 * len(s.start))
}

// Stripped reports whether the file has only the symbol table for dynamic linking, so that a file
// with debug information may have more names.
func (f *File) Stripped() bool {
	s := f.sectionTyped(elf.SHT_SYMTAB)
	return s == nil
}

// DebugLink returns the name of the file with this file's separated debug information, from
// .gnu_debuglink; "" if there is none. It is a name without a directory.
func (f *File) DebugLink() string {
	const longest = 256 // NAME_MAX and a NUL; a checksum follows
	s := f.sectionNamed(".gnu_debuglink")
	if s == nil {
		return ""
	}
	data, err := f.sectionData(s, longest+8)
	if err != nil {
		return ""
	}
	name, _, ok := bytes.Cut(data, []byte{0})
	if !ok || len(name) >= longest || bytes.ContainsAny(name, "/") || string(name) == "." || string(name) == ".." {
		return ""
	}
	return string(name)
}

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
