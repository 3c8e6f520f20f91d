package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxTasks bounds the processes of a host and the threads of a process. The kernel's own limit
	// (PID_MAX_LIMIT) is 4 Mi; hosts in use stay far below this bound.
	maxTasks = 1 << 18
	// maxPID is PID_MAX_LIMIT of include/linux/threads.h.
	maxPID = 1 << 22
)

// Root is where procfs is mounted. The zero value is /proc.
type Root string

// DefaultRoot is where procfs is mounted everywhere.
const DefaultRoot Root = "/proc"

// path joins the file name of a process.
func (r Root) path(pid int, elem ...string) string {
	return filepath.Join(append([]string{r.String(), strconv.Itoa(pid)}, elem...)...)
}

// String returns the directory.
func (r Root) String() string {
	if r == "" {
		return string(DefaultRoot)
	}
	return string(r)
}

// PIDs lists the processes, ascending, kernel threads included. Any of them may be gone by the time
// it is looked at.
func (r Root) PIDs() ([]int, error) {
	pids, err := numericNames(r.String())
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return pids, nil
}

// Threads lists the thread ids of a process, ascending, the leader's among them.
func (r Root) Threads(pid int) ([]int, error) {
	tids, err := numericNames(r.path(pid, "task"))
	if err != nil {
		return nil, explain(pid, "list threads", err)
	}
	return tids, nil
}

// Executable returns the path of the program that the process runs, as seen from its own root. A "
// (deleted)" at the end means what it says, or is part of the name.
func (r Root) Executable(pid int) (string, error) {
	// The kernel bounds a link by PATH_MAX.
	path, err := os.Readlink(r.path(pid, "exe"))
	if err != nil {
		return "", explain(pid, "read executable", err)
	}
	return path, nil
}

// numericNames returns the entries of dir that are task ids, ascending. It reads in batches, so
// that a directory that is too large costs no more than the bound.
func numericNames(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var ids []int
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			id, err := strconv.Atoi(name)
			if err != nil || id <= 0 || id > maxPID {
				continue
			}
			ids = append(ids, id)
		}
		if len(ids) > maxTasks {
			return nil, fmt.Errorf("more than %d tasks: %w", maxTasks, ErrTooLarge)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(ids)
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// read returns a whole small file of a process, at most limit bytes of it.
func (r Root) read(pid, limit int, elem ...string) ([]byte, error) {
	name := elem[len(elem)-1]
	b, err := r.readSome(pid, limit+1, elem...)
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, fmt.Errorf("read %s of process %d: more than %d bytes: %w", name, pid, limit, ErrTooLarge)
	}
	return b, nil
}

// open opens a file of a process for reading. os.Open would spend four more system calls to find
// out that it cannot be polled.
func (r Root) open(pid int, elem ...string) (*os.File, error) {
	path := r.path(pid, elem...)
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if err != unix.EINTR {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// readSome reads a file of a process up to a limit.
func (r Root) readSome(pid, limit int, elem ...string) ([]byte, error) {
	name := elem[len(elem)-1]
	f, err := r.open(pid, elem...)
	if err != nil {
		return nil, explain(pid, "open "+name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	if err != nil {
		return nil, explain(pid, "read "+name, err)
	}
	return b, nil
}

// initialPIDNamespace is the number of the namespace that the kernel boots with: PROC_PID_INIT_INO
// of its include/linux/proc_ns.h.
const initialPIDNamespace = 0xEFFFFFFC

// HostPIDs says whether process ids are those of the host here, as the kernel side has them. In
// another PID namespace they stand for other processes.
func (r Root) HostPIDs() (bool, error) {
	link, err := os.Readlink(filepath.Join(r.String(), "self/ns/pid"))
	if err != nil {
		return false, err
	}
	text, found := strings.CutPrefix(link, "pid:[")
	number, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	if !found || err != nil {
		return false, fmt.Errorf("PID namespace %q is not understood", link)
	}
	return number == initialPIDNamespace, nil
}
