package guest

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An image is the library of one build of a VM, which is read, and to which code probes are
// attached, once for all processes that map it.
type image struct {
	runtime  bridge.Runtime
	path     string // path of the file in the mount namespace of the first process that mapped it
	img      vmruntime.Image
	segments elffile.Segments
	err      error // why there is no img
	sites    attach.Sites
	probes   error            // why code is not followed live, nil if it is
	attached *attach.Attached // nil if there are none
}

// MaxLibrary bounds a library that is read, in bytes; debug builds with symbols have 400 MB.
const MaxLibrary = 1 << 30

// A MappedFile is a file that a process maps. The function that opens it closes it.
type MappedFile struct {
	File *os.File
	Key  symbolize.FileKey // distinguishes it from others, and from itself before it was rewritten
}

// Open opens the file behind one of p's mappings. That happens in the pool, as the file may be in a
// file system of p's making. The worker that has p calls it. The read is counted.
func (rs *Resolver) Open(p *Process, m *proc.Mapping) (MappedFile, error) {
	opened, err := Call(rs, p, func() (MappedFile, error) {
		f, err := rs.root.OpenMapped(p.PID, m, MaxLibrary)
		if err != nil {
			return MappedFile{}, err
		}
		key, err := openKey(f)
		if err != nil {
			f.Close()
			return MappedFile{}, err
		}
		return MappedFile{f, key}, nil
	})
	if !proc.Refused(err) || p.work.refuse(fileID{m.Dev, m.Inode}) {
		rs.reads.count(err)
	}
	return opened, err
}

// newImages returns the keeper of images. Their probes are attached in that pool.
func (rs *Resolver) newImages(pool *proc.Pool) *library.Keeper[symbolize.FileKey, *Process, image] {
	return library.New[symbolize.FileKey, *Process](pool, library.Kind[image]{
		Attach: rs.attachImage,
		Attached: func(im image) {
			if im.probes != nil {
				rs.log.Warn("compilations are not followed live; methods compiled from now on may have no names",
					"library", im.path, "err", im.probes)
			}
		},
		Detach: func(_ context.Context, im image) {
			if im.attached == nil {
				return
			}
			if err := rs.probes.Detach(im.attached); err != nil {
				rs.log.Error("cannot detach probes", "library", im.path, "err", err)
			}
		},
	})
}

// image returns the library of p's VM. The error says why it cannot be used for now, for reasons
// that are p's; what is wrong with the library itself is in the image.
func (rs *Resolver) image(p *Process, m *proc.Mapping, lib MappedFile) (image, error) {
	vm, _ := bridge.Recognise(rs.runtimes, m.Path)
	im, err := rs.images.Use(p, p.PID, lib.Key, lib.File, func(im *image) (bool, error) {
		found, err := Call(rs, p, func() (image, error) { return readImage(vm, lib, m.Path), nil })
		if err != nil {
			return false, err
		}
		*im = found
		return im.err == nil, nil
	})
	if err != nil && !errors.Is(err, library.ErrAttaching) {
		return image{}, fmt.Errorf("attach probes: %w", err)
	}
	return im, err
}

// readImage reads the library of a VM of that runtime. It attaches nothing.
func readImage(vm bridge.Runtime, lib MappedFile, path string) image {
	im := image{runtime: vm, path: path}
	file, err := elffile.Open(lib.File, lib.Key.Size)
	if err != nil {
		im.err = fmt.Errorf("read library of the VM: %w", err)
		return im
	}
	im.segments = file.Segments()
	if im.img, im.err = vm.Image(file); im.err == nil {
		im.sites, im.probes = vm.CodeSites(file)
	}
	return im
}

// attachImage attaches the probes of an image. An error says that another attempt may succeed.
func (rs *Resolver) attachImage(im image, f *os.File) (image, error) {
	if im.probes != nil {
		return im, nil
	}
	im.attached, im.probes = rs.probes.Attach(f, im.sites)
	if errors.Is(im.probes, unix.EMFILE) || errors.Is(im.probes, unix.ENFILE) {
		return im, im.probes
	}
	return im, nil
}
