package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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

// segmentNames returns the segments of a directory in their order, and other files of ours that are of no use: interrupted merges, and segments
// whose higher level is complete.
func segmentNames(dir *os.Root) (names []segmentName, useless []string, err error) {
	list, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, nil, fmt.Errorf("list the history: %w", err)
	}
	best := make(map[uint64]int)
	for _, f := range list {
		name, isTemporary := strings.CutSuffix(f.Name(), temporary)
		n, ok := parseSegmentName(name)
		switch {
		case !ok || !f.Type().IsRegular():
			continue
		case isTemporary:
			useless = append(useless, f.Name())
			continue
		}
		if level, known := best[n.number]; known {
			useless = append(useless, segmentName{n.number, min(level, n.level)}.String())
			n.level = max(level, n.level)
		}
		best[n.number] = n.level
	}
	for number, level := range best {
		names = append(names, segmentName{number, level})
	}
	slices.SortFunc(names, func(a, b segmentName) int { return int(int64(a.number) - int64(b.number)) })
	return names, useless, nil
}

// openSegment opens a file of the directory for reading. Whoever owns the directory may have put anything there.
func openSegment(dir *os.Root, name segmentName) (*os.File, os.FileInfo, error) {
	f, err := dir.OpenFile(name.String(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
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

// ownDirectory opens a directory to write to, makes it if need be, and locks it. It refuses one that others may write to.
func ownDirectory(path string) (dir *os.Root, lock *os.File, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the directory of the history: %w", err)
	}
	dir, err = os.OpenRoot(path)
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
		return fmt.Errorf("directory %s of the history has mode %04o: others can write to it; use another one or chmod 700 it", path, info.Mode().Perm())
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("directory %s of the history belongs to user %d, who can write to it: use another one", path, owner)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("directory %s of the history is in use by another agent: use another one", path)
		}
		return fmt.Errorf("lock the directory of the history: %w", err)
	}
	return nil
}
