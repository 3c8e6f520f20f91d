package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
)

// A segmentName is the name of a segment's file.
type segmentName struct {
	number uint64
	level  int
}

// levels is how many there are.
const levels = 3

const temporary = ".tmp" // ends the name of a segment that is being written anew

func (n segmentName) String() string { return fmt.Sprintf("%08d.%d", n.number, n.level) }

func parseSegmentName(text string) (n segmentName, ok bool) {
	number, level, _ := strings.Cut(text, ".")
	var err error
	if n.number, err = strconv.ParseUint(number, 10, 63); err != nil {
		return n, false
	}
	if n.level, err = strconv.Atoi(level); err != nil || n.level < 0 || n.level >= levels {
		return n, false
	}
	return n, n.String() == text
}

// A listing is what a directory has of a history.
type listing struct {
	segments  []segmentName // in their order, of each number the highest level
	lower     []segmentName // lower levels of the same numbers
	temporary []string      // interrupted merges
	next      uint64        // no name has that number or a higher one
}

// listSegments lists a directory. Only regular files are segments, but the number of anything else
// is taken, too.
func listSegments(dir *os.Root) (l listing, err error) {
	list, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return l, fmt.Errorf("list the history: %w", err)
	}
	best := make(map[uint64]int)
	for _, f := range list {
		name, isTemporary := strings.CutSuffix(f.Name(), temporary)
		n, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		l.next = max(l.next, n.number+1)
		switch {
		case !f.Type().IsRegular():
			continue
		case isTemporary:
			l.temporary = append(l.temporary, f.Name())
			continue
		}
		if level, known := best[n.number]; known {
			l.lower = append(l.lower, segmentName{n.number, min(level, n.level)})
			n.level = max(level, n.level)
		}
		best[n.number] = n.level
	}
	for number, level := range best {
		l.segments = append(l.segments, segmentName{number, level})
	}
	slices.SortFunc(l.segments, func(a, b segmentName) int { return cmp.Compare(a.number, b.number) })
	return l, nil
}

// A segmentFile is an open segment.
type segmentFile interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Fd() uintptr
	Close() error
}

// An opener opens a file of the directory. Tests have some whose files fail.
type opener func(dir *os.Root, name string, flags int) (segmentFile, error)

// openFile is the usual opener. Whoever owns the directory may have put anything there.
func openFile(dir *os.Root, name string, flags int) (segmentFile, error) {
	f, err := dir.OpenFile(name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// segment opens a segment that exists.
func (open opener) segment(dir *os.Root, name segmentName, flags int) (segmentFile, os.FileInfo, error) {
	f, err := open(dir, name.String(), flags)
	if err != nil {
		return nil, nil, fmt.Errorf("open segment %v: %w", name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("open segment %v: %w", name, err)
	}
	return f, info, nil
}

// ownDirectory opens a directory to write to, makes it if need be, and locks it. It refuses one
// that others may write to.
func ownDirectory(path string) (dir *os.Root, lock *os.File, err error) {
	at, err := outfile.MakeDir(path, 0o700, true)
	if err != nil {
		return nil, nil, fmt.Errorf("open or create the directory %s of the history: %w", path, err)
	}
	defer unix.Close(at)
	dir, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", at)) // the path may lead elsewhere by now
	if err != nil {
		return nil, nil, fmt.Errorf("open the directory of the history: %w", err)
	}
	lock, err = dir.Open(".")
	if err == nil {
		err = checkOwned(path, lock)
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		dir.Close()
		return nil, nil, err
	}
	return dir, lock, nil
}

func checkOwned(path string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("check the directory of the history: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("directory %s of the history has mode %04o: others can write to it; use another one or "+
			"chmod 700 it", path, info.Mode().Perm())
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("directory %s of the history belongs to user %d, who can write to it: use another one", path,
			owner)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("directory %s of the history is in use by another agent: use another one", path)
		}
		return fmt.Errorf("lock the directory of the history: %w", err)
	}
	return nil
}
