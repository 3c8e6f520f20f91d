package symbolize

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Loaded names code that comes into the kernel and goes while it runs: BPF programs, and what calls
// them. Several goroutines may use it. The zero value is empty.
//
// Code that has gone keeps its name until other code is at its place, as samples of it may wait to
// be named.
type Loaded struct {
	mu   sync.RWMutex
	code []loadedCode // ascending; none overlaps another one
}

type loadedCode struct {
	start, end uint64
	name       string
	gone       bool
}

const (
	// maxLoaded bounds the functions of BPF programs; each takes about 100 bytes.
	maxLoaded = 1 << 16
	// guessedCode is the assumed length of a function in bytes whose length is not known, up to the
	// end of a page.
	guessedCode = 4096
)

// Add notes that there is code of so many bytes, in place of all that was there. With a size of 0,
// which is that of code whose size is not known, it ends where other code begins, and with its
// page.
func (l *Loaded) Add(start, size uint64, name string) {
	end := start + size
	if size == 0 {
		end = start - start%guessedCode + guessedCode
	}
	if end <= start {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.after(start)
	if from > 0 && l.code[from-1].end > start {
		if before := &l.code[from-1]; before.start < start && !before.gone {
			before.end = start // its end was a guess
		} else {
			from--
		}
	}
	to := from
	for to < len(l.code) && l.code[to].start < end {
		if size == 0 && !l.code[to].gone && l.code[to].start > start {
			end = l.code[to].start
			break
		}
		to++
	}
	l.code = slices.Replace(l.code, from, to, loadedCode{start: start, end: end, name: name})
	if len(l.code) > maxLoaded {
		l.code = slices.DeleteFunc(l.code, func(c loadedCode) bool { return c.gone })
		l.code = l.code[:min(len(l.code), maxLoaded)]
	}
}

// Remove notes that the code that begins there has gone.
func (l *Loaded) Remove(start uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.after(start) - 1; i >= 0 && l.code[i].start == start {
		l.code[i].gone = true
	}
}

// Resize notes the size of code that begins there, if it is known.
func (l *Loaded) Resize(start, size uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.after(start) - 1
	if i < 0 || l.code[i].start != start || size == 0 || start+size < start {
		return
	}
	l.code[i].end = start + size
	if i+1 < len(l.code) {
		l.code[i].end = min(l.code[i].end, l.code[i+1].start)
	}
}

// Lookup returns the name of the code at an address. A nil Loaded knows none.
func (l *Loaded) Lookup(addr uint64) (name string, ok bool) {
	if l == nil {
		return "", false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := l.after(addr) - 1
	if i < 0 || addr >= l.code[i].end {
		return "", false
	}
	return l.code[i].name, true
}

// after is the index of the first code that begins behind an address; mu is held.
func (l *Loaded) after(addr uint64) int {
	i, found := slices.BinarySearchFunc(l.code, addr, func(c loadedCode,
		a uint64) int {
		return cmp.Compare(c.start, a)
	})
	if found {
		i++
	}
	return i
}

// loadedModule is the module that /proc/kallsyms names for BPF programs.
const loadedModule = "\t[bpf]"

// loadedName returns the name of a symbol of /proc/kallsyms that comes and goes, without the
// module; ok is false for others.
func loadedName(name []byte) (string, bool) { return strings.CutSuffix(string(name), loadedModule) }
