package proc

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// What a page of another process is before anybody touches it. A read of a page that is in memory, or in swap, cannot
// wait for anybody but the kernel. Any other page has to be supplied: by the kernel, or by a file system or a
// userfaultfd handler of the target's making, which may never do so. The kernel's pagemap says which it is without
// touching the page (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62

	pageEntry = 8 // bytes of pagemap for a page
	// pageGap is how many pages that nobody asked for are looked at rather than begin another system call.
	pageGap = 64
	// pageRun is how many pages are looked at in one system call.
	pageRun = 512
)

// errAbsent: some of the pages have to be supplied.
var errAbsent = errors.New("pages are not in memory")

// resident returns errAbsent unless all pages of these ranges are in memory or in swap. It may change at once.
func resident(pagemap *os.File, ranges []vmruntime.Range, pageSize uint64) error {
	pages := make([]uint64, 0, len(ranges))
	for _, r := range ranges {
		if len(r.Buf) == 0 || r.Addr+uint64(len(r.Buf)) < r.Addr {
			continue // nothing to read there
		}
		for page, last := r.Addr/pageSize, (r.Addr+uint64(len(r.Buf))-1)/pageSize; page <= last; page++ {
			if n := len(pages); n == 0 || pages[n-1] != page {
				pages = append(pages, page)
			}
		}
	}
	slices.Sort(pages)
	pages = slices.Compact(pages)
	var entries [pageRun * pageEntry]byte
	for len(pages) > 0 {
		first, n := pages[0], 1
		for n < len(pages) && pages[n]-pages[n-1] <= pageGap && pages[n]-first < pageRun {
			n++
		}
		run := entries[:(pages[n-1]-first+1)*pageEntry]
		if got, _ := pagemap.ReadAt(run, int64(first*pageEntry)); got < len(run) {
			return errAbsent // beyond what a process can map, or it is gone: the read will show
		}
		for _, page := range pages[:n] {
			if binary.NativeEndian.Uint64(run[(page-first)*pageEntry:])&(pagePresent|pageSwapped) == 0 {
				return errAbsent
			}
		}
		pages = pages[n:]
	}
	return nil
}
