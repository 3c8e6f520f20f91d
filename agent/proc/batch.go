package proc

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxIovecs is UIO_MAXIOV of include/uapi/linux/uio.h: the ranges that one process_vm_readv takes.
const maxIovecs = 1024

// maxKept is the largest buffer that is kept for the next batch.
const maxKept = 64 << 10

// A batch reads into memory of its own, because an abandoned read may go on long after its caller has gone, and must
// not write to what that caller has since used for something else.
type batch struct {
	remote []unix.RemoteIovec
	ok     []bool
	buf    []byte // the ranges one after the other
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns a batch for the ranges, total bytes long. The caller has checked the bounds.
func newBatch(ranges []vmruntime.Range, total int) *batch {
	b := batches.Get().(*batch)
	b.remote, b.ok = b.remote[:0], b.ok[:0]
	if cap(b.buf) < total {
		b.buf = make([]byte, total)
	}
	b.buf = b.buf[:total]
	for _, r := range ranges {
		b.remote = append(b.remote, unix.RemoteIovec{Base: uintptr(r.Addr), Len: len(r.Buf)})
		b.ok = append(b.ok, len(r.Buf) == 0)
	}
	return b
}

// read fetches the ranges from the process; begin is called before each system call. Ranges that cannot be read are skipped.
func (b *batch) read(pid int, begin func()) error {
	done := 0 // bytes of buf that are dealt with
	for first := 0; first < len(b.remote); {
		window := b.remote[first:min(first+maxIovecs, len(b.remote))]
		want := 0
		for _, r := range window {
			want += r.Len
		}
		n := 0
		if want > 0 {
			local := unix.Iovec{Base: &b.buf[done]}
			local.SetLen(want)
			var err error
			begin()
			n, err = unix.ProcessVMReadv(pid, []unix.Iovec{local}, window, 0)
			switch {
			case err == nil:
			case errors.Is(err, unix.EFAULT), errors.Is(err, unix.EIO), errors.Is(err, unix.EHWPOISON):
				n = 0 // not even the first range could be read
			default:
				return err
			}
		}
		// The kernel stops at the first page that it cannot read: the ranges before it are whole, the range it is in
		// is not, and those after it are tried again.
		i := 0
		for ; i < len(window) && n >= window[i].Len; i++ {
			n -= window[i].Len
			done += window[i].Len
			b.ok[first+i] = true
		}
		if i < len(window) {
			done += window[i].Len
			i++
		}
		first += i
	}
	return nil
}

// deliver copies what was read to the ranges and gives the batch back.
func (b *batch) deliver(ranges []vmruntime.Range) {
	off := 0
	for i := range ranges {
		if ranges[i].OK = b.ok[i]; b.ok[i] {
			copy(ranges[i].Buf, b.buf[off:])
		}
		off += len(ranges[i].Buf)
	}
	if cap(b.buf) <= maxKept {
		batches.Put(b)
	}
}
