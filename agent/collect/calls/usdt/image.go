package usdt

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An image is a file of an interpreter, for all processes that map it.
type image struct {
	*build
	file  *os.File
	sites []attach.Site
}

// A fileID identifies the content of a file: a replaced file has another one.
type fileID struct {
	device, inode uint64
	size, changed int64 // bytes; ns
}

// An openedBuild is the opened file of an interpreter.
type openedBuild struct {
	*build
	file *os.File
	id   fileID
}

// openBuild opens the file behind a mapping and reads it. It must run in a pool. That it is opened
// is counted. known says which files need not be read again.
func openBuild(
	root proc.Root, pid int, m *proc.Mapping, count func(error), known func(fileID) bool,
) (o openedBuild, err error) {
	f, err := root.OpenMapped(pid, m, maxBuild)
	count(err)
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
	o.build, err = readBuild(f, st.Size, languageOf(m.Path))
	return o, err
}

// newImage registers the sites of a file with the kernel side, with cookies from the given one on.
// Nothing is attached. The image owns o.file.
func newImage(o openedBuild, usdt *bpf.UsdtObjects, cookie uint32) (*image, error) {
	im := &image{build: o.build, file: o.file}
	for i, s := range o.build.sites {
		c := cookie + uint32(i)
		if err := usdt.UsdtProbes.Put(c, &s.probe); err != nil {
			return nil, fmt.Errorf("register probe site %d: %w", c, err)
		}
		im.sites = append(im.sites, attach.Site{Offset: s.offset, RefCtrOffset: s.semaphore, Cookie: uint64(c)})
	}
	return im, nil
}
