package proc

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What the agent opens for a process becomes names that others see, and the agent may read more
// than the user of that process. So it opens only what that user could open: a reader decides this
// for each directory, link and file on the way, from the descriptor that it opened, so that nothing
// depends on what a path leads to a moment later. Security modules of the kernel are not asked.

// A reader is the user for whom a file is opened.
type reader struct {
	uid       uint32
	groups    []uint32
	all       bool // root, with the capability to read every file
	everybody bool // has the rights that everybody has, and no others
}

// Bits of a mode, of each of the three classes of users.
const (
	mayRead   = 4
	maySearch = 1
)

// readerOf returns the user of a process. A process with the ids of several users gets the rights
// of everybody: whoever started it may have chosen the path.
func (r Root) readerOf(pid int) (reader, error) {
	s, err := r.Status(pid)
	if err != nil {
		return reader{}, err
	}
	return reader{uid: s.UID, groups: append(s.Groups, s.GID), all: s.UID == 0 && s.ReadsAll && !s.Mixed,
		everybody: s.Mixed}, nil
}

func (u *reader) equal(o *reader) bool {
	return u.uid == o.uid && u.all == o.all && u.everybody == o.everybody && slices.Equal(u.groups, o.groups)
}

// asUser opens a file for the user of a process, who must be the same afterwards: a process can
// become another user's by executing a program, while its files are those of the one that it was.
func (r Root) asUser(pid int, open func(*reader) (*os.File, error)) (*os.File, error) {
	user, err := r.readerOf(pid)
	if err != nil {
		return nil, err
	}
	f, err := open(&user)
	if err != nil {
		return nil, err
	}
	after, err := r.readerOf(pid)
	if err == nil && !after.equal(&user) {
		err = fmt.Errorf("process %d changed its user: %w", pid, ErrDenied)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// may reports whether the mode or the access list of an open file lets the user do something.
func (u *reader) may(fd int, st *unix.Stat_t, what uint32) bool {
	switch {
	case u.all:
		return true
	case u.everybody:
		return st.Mode&what != 0
	case st.Uid == u.uid:
		return st.Mode>>6&what != 0
	}
	if st.Mode&unix.S_IRWXG != 0 { // without such bits the kernel looks at no access list
		if list := accessList(fd); list != nil {
			return u.listed(list, st, what)
		}
	}
	if slices.Contains(u.groups, st.Gid) {
		return st.Mode>>3&what != 0
	}
	return st.Mode&what != 0
}

// An accessEntry is struct posix_acl_xattr_entry of the kernel's
// include/uapi/linux/posix_acl_xattr.h.
type accessEntry struct {
	tag, what uint16
	id        uint32
}

// Tags of include/uapi/linux/posix_acl.h.
const (
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

// maxAccessList bounds an access list: no file system in use stores more than 8 KiB.
const maxAccessList = 64 << 10

// accessList reads the access list of an open file. It is nil if there is none, and denies all if
// it cannot be read.
func accessList(fd int) []accessEntry {
	b := make([]byte, 512)
	n, err := unix.Getxattr(selfPath(fd), "system.posix_acl_access", b)
	if err == unix.ERANGE {
		b = make([]byte, maxAccessList)
		n, err = unix.Getxattr(selfPath(fd), "system.posix_acl_access", b)
	}
	switch {
	case err == unix.ENODATA, err == unix.EOPNOTSUPP:
		return nil
	case err != nil, n < 4:
		return []accessEntry{}
	}
	list := []accessEntry{}
	for b = b[4:n]; len(b) >= 8; b = b[8:] {
		list = append(list, accessEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]),
			binary.LittleEndian.Uint32(b[4:])})
	}
	return list
}

// listed is the kernel's posix_acl_permission, for a user who is not the owner.
func (u *reader) listed(list []accessEntry, st *unix.Stat_t, what uint32) bool {
	mask, other := uint16(0o7), uint16(0)
	for _, e := range list {
		switch e.tag {
		case aclMask:
			mask = e.what
		case aclOther:
			other = e.what
		}
	}
	member := false
	for _, e := range list {
		switch {
		case e.tag == aclUser && e.id == u.uid:
			return uint32(e.what&mask)&what != 0
		case e.tag == aclGroupObj && slices.Contains(u.groups, st.Gid), e.tag == aclGroup &&
			slices.Contains(u.groups, e.id):
			member = true
			if uint32(e.what)&what != 0 {
				return uint32(mask)&what != 0
			}
		}
	}
	return !member && uint32(other)&what != 0
}

// find returns an O_PATH descriptor of the file that a path leads to from a root directory, if the
// user may get there. It opens no link of procfs, as these lead anywhere, and follows no link of
// another user in a directory where everybody may create files: both the owner of such a directory
// and the user may put links there.
func (u *reader) find(root int, path string) (int, error) {
	w := walk{user: u, dirs: []int{root}, rest: path}
	defer w.up(1)
	for w.rest != "" {
		name, rest, more := strings.Cut(w.rest, "/")
		w.rest = rest
		if name == "" {
			continue
		}
		fd, err := w.step(name, more)
		if fd >= 0 || err != nil {
			return fd, err
		}
	}
	return -1, ErrNotRegular // a directory
}

// A walk is on its way from a root directory to a file.
type walk struct {
	user  *reader
	dirs  []int // O_PATH descriptors of the directories that it went through, the root first
	rest  string
	links int
}

const (
	maxLinks = 40  // as the kernel (MAXSYMLINKS of include/linux/namei.h)
	maxDepth = 100 // directories that are open at once: paths in use have 30
)

// step goes on by one name. It returns the file that has it, and -1 if that is a directory or a
// link, as more must follow.
func (w *walk) step(name string, more bool) (int, error) {
	at := w.dirs[len(w.dirs)-1]
	var dir unix.Stat_t
	if err := unix.Fstat(at, &dir); err != nil {
		return -1, err
	}
	if !w.user.may(at, &dir, maySearch) {
		return -1, ErrNotOfUser
	}
	switch name {
	case ".":
		return -1, nil
	case "..":
		w.up(max(1, len(w.dirs)-1))
		return -1, nil
	}
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch kind := st.Mode & unix.S_IFMT; {
	case err != nil:
	case kind == unix.S_IFDIR && len(w.dirs) < maxDepth:
		w.dirs = append(w.dirs, fd)
		return -1, nil
	case kind == unix.S_IFDIR:
		err = unix.ENAMETOOLONG
	case kind == unix.S_IFLNK:
		err = w.follow(fd, &st, &dir, more)
	case more:
		err = unix.ENOTDIR
	default:
		return fd, nil
	}
	unix.Close(fd)
	return -1, err
}

// follow puts a link's target in front of the rest of the path.
func (w *walk) follow(fd int, st, dir *unix.Stat_t, more bool) error {
	const everybodys = unix.S_ISVTX | unix.S_IWOTH
	if dir.Mode&everybodys == everybodys && st.Uid != dir.Uid && (w.user.everybody || st.Uid != w.user.uid) {
		return ErrNotOfUser
	}
	if kernels, err := onProcfs(fd); err != nil {
		return err
	} else if w.links++; kernels || w.links > maxLinks {
		return unix.ELOOP
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return err
	}
	if more {
		w.rest = "/" + w.rest
	}
	if w.rest = string(target[:n]) + w.rest; len(w.rest) > maxLinks*unix.PathMax {
		return unix.ENAMETOOLONG
	}
	if strings.HasPrefix(w.rest, "/") {
		w.up(1)
	}
	return nil
}

// up goes back to the first so many directories.
func (w *walk) up(keep int) {
	for _, fd := range w.dirs[keep:] {
		unix.Close(fd)
	}
	w.dirs = w.dirs[:keep]
}

// onProcfs reports whether an open file is one of procfs. What such a file contains depends on who
// opens it, so its mode does not say what others could read.
func onProcfs(fd int) (bool, error) {
	var sys unix.Statfs_t
	err := unix.Fstatfs(fd, &sys)
	return err == nil && sys.Type == unix.PROC_SUPER_MAGIC, err
}

// selfPath is a name for an open file: the descriptor's own link.
func selfPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
