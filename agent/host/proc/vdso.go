package proc

import (
	"io"
	"os"
)

// VDSO is the path of the mapping with the code that the kernel gives to every process.
const VDSO = "[vdso]"

// ReadVDSO returns the caller's own vDSO, an ELF file, which is every 64-bit process's; nil if it
// cannot be read.
func (r Root) ReadVDSO() []byte {
	maps, err := r.Maps(os.Getpid(), Executable)
	if err != nil {
		return nil
	}
	for _, m := range maps {
		if m.Path != VDSO {
			continue
		}
		mem, err := os.Open(string(r) + "/self/mem")
		if err != nil {
			return nil
		}
		defer mem.Close()
		b := make([]byte, m.Limit-m.Start)
		if _, err := io.ReadFull(io.NewSectionReader(mem, int64(m.Start), int64(len(b))), b); err != nil {
			return nil
		}
		return b
	}
	return nil
}
