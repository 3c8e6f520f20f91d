package semaphore

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An image is a file of PHP that the engine has attached to, for all processes that map it.
type image struct {
	*build
	file  *os.File // carries the lock
	links []link.Link
}

// A fileID names the content of a file: one that was replaced is another one.
type fileID struct {
	device, inode uint64
	size, changed int64 // bytes; ns
}

// An opened file of PHP, not attached yet.
type openedBuild struct {
	*build
	file *os.File
	id   fileID
}

// errLocked: two agents would clear each other's semaphores.
var errLocked = errors.New("another vmprof-agent samples calls of this PHP")

// errShared: the kernel answers so if somebody attached to the probe with its semaphore.
var errShared = errors.New("another tracer (perf, bpftrace) is attached to php:function__entry: end it first")

// openBuild opens the file behind a mapping and reads it. Call it through a pool. known says which files need not be
// read again.
func openBuild(root proc.Root, pid int, m *proc.Mapping, known func(fileID) bool) (o openedBuild, err error) {
	f, err := root.OpenMapped(pid, m, maxBuild)
	if err != nil {
		return o, err
	}
	defer func() {
		if err != nil || o.build == nil {
			f.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return o, fmt.Errorf("look at %q: %w", m.Path, err)
	}
	o = openedBuild{file: f, id: fileID{st.Dev, st.Ino, st.Size, st.Ctim.Nano()}}
	if known(o.id) {
		return o, nil
	}
	o.build, err = readBuild(f, st.Size)
	return o, err
}

// attachImage attaches the kernel side to a file and takes the lock on it. The image owns o.file, also after an error.
func attachImage(o openedBuild, uprobes attach.Uprobes, php *bpf.PhpObjects, cookie uint32) (_ *image, err error) {
	im := &image{build: o.build, file: o.file}
	defer func() {
		if err != nil {
			im.close()
		}
	}()
	// The lock goes with the descriptor: the kernel gives it back however the agent ends.
	if err := unix.Flock(int(o.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%w (%w)", errLocked, err)
	}
	var sites []attach.Site
	for i, s := range o.sites {
		c := cookie + uint32(i)
		if err := php.PhpProbes.Put(c, &s.probe); err != nil {
			return nil, fmt.Errorf("register probe site %d: %w", c, err)
		}
		// Without the semaphore's offset: the kernel would count it up in every process, for as long as it is attached.
		sites = append(sites, attach.Site{Offset: s.offset, Cookie: uint64(c)})
	}
	program := attach.Uprobe{Multi: php.PhpFunctionEntryMulti, Single: php.PhpFunctionEntrySingle}
	im.links, err = uprobes.Attach(o.file, 0, program, sites)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%w (%w)", errShared, err)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to php:function__entry: %w", err)
	}
	return im, nil
}

// close takes the probes away and lets other agents in.
func (im *image) close() error {
	var errs []error
	for _, l := range im.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, im.file.Close())...)
}
