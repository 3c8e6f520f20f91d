package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

const (
	maxMapped     = 1024    // files of one process; a JVM has 20, a browser 300
	maxMappedSize = 2 << 30 // bytes of one; debug builds of large libraries have 400 MB
)

// A MappedFile is an ELF file that has code in a process.
type MappedFile struct {
	Path string   // as the process has it; hostile
	File *os.File // to read from and to attach to
	ELF  *elffile.File
}

// MappedFiles opens the ELF files that have code in a process, one after the other, for as long as visit looks at each; it
// ends with visit's first error. unread are the paths of those that cannot be opened, as they were deleted or replaced. A
// file system of the target's making can delay it: call it through a proc.Pool.
func MappedFiles(root proc.Root, pid int, visit func(*MappedFile) error) (unread []string, err error) {
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
		} else if seen[f] = true; len(seen) > maxMapped {
			return unread, fmt.Errorf("process %d maps more than %d files: %w", pid, maxMapped, proc.ErrTooLarge)
		}
		switch err := visitMapped(root, pid, m, visit); {
		case errors.Is(err, errUnread):
			unread = append(unread, m.Path)
		case err != nil:
			return unread, err
		}
	}
	return unread, nil
}

var errUnread = errors.New("file cannot be read")

func visitMapped(root proc.Root, pid int, m *proc.Mapping, visit func(*MappedFile) error) error {
	f, err := root.OpenMapped(pid, m, maxMappedSize)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	defer f.Close()
	e, err := elffile.OpenFile(f)
	if errors.Is(err, elffile.ErrNotELF) {
		return nil // code that a VM keeps in a file
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	return visit(&MappedFile{m.Path, f, e})
}
