package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// MappedLimits bound the opened files of a process.
type MappedLimits struct {
	Files int   // files of one process; a JVM has 20, a browser 300
	Size  int64 // bytes of one; debug builds of large libraries have 400 MB
}

// A MappedFile is an ELF file that has code in a process.
type MappedFile struct {
	Path string   // as the process has it; hostile
	File *os.File // file to read from and to attach to
	ELF  *elffile.File
}

// An UnreadFile could not be read, because it was deleted or replaced, is too large, or is not an
// ELF file of a supported kind.
type UnreadFile struct {
	Path string // hostile
	Err  error
}

// MappedFiles opens the ELF files with code in a process, one after the other, each until visit
// returns. It stops at visit's first error. Beyond limits.Files it returns proc.ErrTooLarge. A file
// system controlled by the target can delay it: call it through a proc.Pool.
func MappedFiles(
	root proc.Root, pid int, limits MappedLimits, visit func(*MappedFile) error,
) (unread []UnreadFile, err error) {
	maps, err := root.Maps(pid, func(m *proc.Mapping) bool { return m.Exec && m.IsFile() })
	if err != nil {
		return nil, err
	}
	type file struct{ dev, inode uint64 }
	seen := map[file]bool{}
	for i := range maps {
		m := &maps[i]
		if f := (file{m.Dev, m.Inode}); seen[f] {
			continue
		} else if seen[f] = true; len(seen) > limits.Files {
			return unread, fmt.Errorf("process %d maps more than %d files: %w", pid, limits.Files, proc.ErrTooLarge)
		}
		why, err := visitMapped(root, pid, m, limits.Size, visit)
		if err != nil {
			return unread, err
		}
		if why != nil {
			unread = append(unread, UnreadFile{m.Path, why})
		}
	}
	return unread, nil
}

// visitMapped opens one file for visit, whose error it returns. unread is why the file cannot be
// read; nil if it is visited or not an ELF file at all, like a file in which a VM keeps code.
func visitMapped(
	root proc.Root, pid int, m *proc.Mapping, maxSize int64, visit func(*MappedFile) error,
) (unread, err error) {
	f, err := root.OpenMapped(pid, m, maxSize)
	if err != nil {
		return err, nil
	}
	defer f.Close()
	e, err := elffile.OpenFile(f)
	if errors.Is(err, elffile.ErrNotELF) {
		return nil, nil
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", m.Path, err), nil
	}
	return nil, visit(&MappedFile{m.Path, f, e})
}
