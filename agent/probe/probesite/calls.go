package probesite

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Calls are the calls after which AfterCalls searches.
type Calls struct {
	Callee string // what is called, named as for Finder.Entries
	In     string // the function that calls, named as Callee is; "" for every function of the file
	// Conditional accepts only jumps on a flag, where rax still is the result: for callees whose
	// result is needed. Otherwise any emulated instruction will do.
	Conditional bool
	// Stores allows stores to memory between the call and the site, for cases where only the time
	// matters.
	Stores bool
	// Tails follows functions that end with a jump to the callee: returns from the callee are
	// returns from these functions, so the places after their calls count, too. Threads that were
	// not in the callee also pass those places.
	Tails bool
	// Joins allows branch targets between the call and the site, so that threads from elsewhere
	// pass it as well: for probes that know the callee's return address.
	Joins bool
}

// Returns are the places after calls.
type Returns struct {
	Sites  []Site
	Missed []Missed // calls without a site: measurements from a call to its return lack these
}

// A Missed is a call of the callee whose return no site observes.
type Missed struct {
	Address  uint64 // address of the call, in the file's addresses
	Function string
	Reason   string
}

// AfterCalls finds, for each direct call of a function, the first instruction after it that the
// kernel emulates: a thread that passes it has returned from the call. That holds because no branch
// of its function leads between the two (unless Calls.Joins), and no instruction between them
// stores to memory (unless Calls.Stores) or leaves. The result is that of a uretprobe, without
// changing a return address.
//
// Calls of copies and of the callee's rest (.constprop, .part: see Entries) count as calls of it;
// calls by the callee or one of these do not. Calls through a pointer or the PLT are not found.
// ErrNotFound if there is no call, ErrNoSite if there is no place after any call.
//
// All code of the file is read once; only functions with a call are disassembled. For libjvm that
// takes 0.1 s.
func (f *Finder) AfterCalls(c Calls) (Returns, error) {
	if err := f.needX86(); err != nil {
		return Returns{}, err
	}
	callees, err := f.named(c.Callee)
	if err != nil {
		return Returns{}, err
	}
	var r Returns
	targets := callees
	for depth := 0; len(targets) > 0 && depth <= maxTails; depth++ {
		calls, err := f.scan(targets)
		if err != nil {
			return Returns{}, fmt.Errorf("calls of %s: %w", c.Callee, err)
		}
		targets = nil
		callers := f.callers(calls)
		if f.lookups > maxLookups {
			return Returns{}, fmt.Errorf("calls of %s: more than %d functions are looked up: %w", c.Callee, maxLookups,
				elffile.ErrTooLarge)
		}
		for _, caller := range callers {
			same := func(fn function) bool { return fn.start == caller.start }
			if c.In != "" && !within(caller.name, c.In) || slices.ContainsFunc(callees, same) {
				continue
			}
			tail, err := f.behind(&r, caller, &c)
			if err != nil {
				return Returns{}, fmt.Errorf("calls of %s: %w", c.Callee, err)
			}
			if tail {
				targets, callees = append(targets, caller.function), append(callees, caller.function)
			}
		}
		if len(callees) > maxMatches {
			return Returns{}, fmt.Errorf("more than %d functions end with a jump to %s: %w", maxMatches, c.Callee,
				elffile.ErrTooLarge)
		}
	}
	r.Sites = sorted(r.Sites)
	switch {
	case len(r.Sites) > 0:
		return r, nil
	case len(r.Missed) > 0:
		m := r.Missed[0]
		return Returns{}, fmt.Errorf("behind %d calls of %s, of which the first is in %s: %s: %w",
			len(r.Missed), c.Callee, m.Function, m.Reason, ErrNoSite)
	}
	place := "any function"
	if c.In != "" {
		place = c.In
	}
	return Returns{}, fmt.Errorf("direct call of %s in %s: %w", c.Callee, place, ErrNotFound)
}

// within reports whether a symbol is the named function or a part of it: calls may be in a piece
// that was split off.
func within(symbol, name string) bool {
	w := want(name)
	r, _ := w.is(symbol)
	return r != unrelated
}

// A caller is a function with the addresses of its apparent calls.
type caller struct {
	function
	calls []uint64
}

// callers groups addresses by function. Those outside of all functions are left out: they are in
// code without a name, whose beginning is unknown.
func (f *Finder) callers(calls []uint64) []caller {
	slices.Sort(calls)
	var found []caller
	for _, addr := range calls {
		if n := len(found); n > 0 && addr < found[n-1].end {
			found[n-1].calls = append(found[n-1].calls, addr)
			continue
		}
		if fn, ok := f.functionAt(addr); ok {
			found = append(found, caller{fn, []uint64{addr}})
		}
	}
	return found
}

// behind adds the sites after the calls of one function. Bytes inside another instruction are not a
// call. tail reports that the function ends with a jump to the callee that should be followed.
func (f *Finder) behind(r *Returns, c caller, how *Calls) (tail bool, err error) {
	l, err := f.list(c.function)
	if err != nil {
		return false, err
	}
	for _, addr := range c.calls {
		n, ok := slices.BinarySearch(l.at, uint32(addr-c.start))
		if !ok {
			if l.cut != nil && addr-c.start >= l.end() {
				r.Missed = append(r.Missed, Missed{addr, c.name, fmt.Sprintf("cannot decode the code before it (%v)",
					l.cut)})
			}
			continue
		}
		if l.kinds[n] == Jump && how.Tails {
			tail = true
			continue
		}
		if l.kinds[n] != Call {
			r.Missed = append(r.Missed, Missed{addr, c.name, "a jump replaces a call and a return there"})
			continue
		}
		site, reason := f.after(l, n, how)
		if reason != "" {
			r.Missed = append(r.Missed, Missed{addr, c.name, reason})
			continue
		}
		site.Function, site.Call = c.name, addr
		r.Sites = append(r.Sites, site)
	}
	return tail, nil
}

// after finds the site after the call at instruction n, or says why there is none.
func (f *Finder) after(l *listing, n int, how *Calls) (s Site, reason string) {
	conditional := how.Conditional
	if l.cut != nil {
		return Site{}, fmt.Sprintf("cannot decode its function (%v)", l.cut)
	}
	first := n + 1
	for at := first; at < min(first+maxAhead, len(l.at)); at++ {
		k := l.kinds[at]
		if !how.Joins && l.joined(at, at) {
			return Site{}, fmt.Sprintf("a jump leads to between it and the %s at +%#x", k, l.at[at])
		}
		usable := f.emulates(k)
		if usable && (!conditional || k == CondJump) {
			s, err := f.site(l.address(at), k)
			if err != nil {
				return Site{}, err.Error()
			}
			s.Distance = at - first
			return s, ""
		}
		e := effectOf(l.bytes(at))
		switch {
		case usable && k != Nop:
			return Site{}, fmt.Sprintf("%s at +%#x comes before a jump on a flag", k, l.at[at])
		case e.memory && !how.Stores || e.leaves:
			return Site{}, fmt.Sprintf("%s at +%#x comes before any instruction that the kernel emulates",
				text(l.bytes(at)), l.at[at])
		case conditional && e.writes&resultRegister != 0:
			return Site{}, fmt.Sprintf("%s at +%#x overwrites the result", text(l.bytes(at)), l.at[at])
		}
	}
	return Site{}, fmt.Sprintf("the kernel emulates none of the %d instructions after it", maxAhead)
}

// branchBytes is the length of a call or jmp with 32 bits of distance.
const branchBytes = 5

// scan returns the addresses of all bytes in the file's code that would be a call of or a jump to
// one of the functions, wherever instructions begin. In 20 MB of other code, four bytes match by
// chance once in 200 times.
func (f *Finder) scan(targets []function) ([]uint64, error) {
	var found []uint64
	total := uint64(0)
	for _, p := range f.file.Segments() {
		if elf.ProgType(p.Type) != elf.PT_LOAD || elf.ProgFlag(p.Flags)&elf.PF_X == 0 {
			continue
		}
		if total += p.Filesz; total > maxCode || p.Filesz > maxCode {
			return nil, fmt.Errorf("more than %d bytes of code: %w", maxCode, elffile.ErrTooLarge)
		}
		var err error
		if found, err = f.scanSegment(found, p.Off, p.Vaddr, p.Filesz, targets); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// scanSegment scans size bytes at an offset of the file, which are loaded at addr. Chunks overlap
// by the length of a branch beyond its first byte.
func (f *Finder) scanSegment(found []uint64, offset, addr, size uint64, targets []function) ([]uint64, error) {
	buffer := make([]byte, min(size, scanChunk))
	for at := uint64(0); at+branchBytes <= size; {
		chunk := buffer[:min(uint64(len(buffer)), size-at)]
		n, err := f.bytes.ReadAt(chunk, int64(offset+at))
		if n < len(chunk) {
			if errors.Is(err, io.EOF) {
				err = elffile.ErrMalformed
			}
			return nil, fmt.Errorf("read code at offset %#x: %w", offset+at, err)
		}
		for _, t := range targets {
			if t.role == cold {
				continue
			}
			found = branchesTo(found, chunk, addr+at, t.start)
			if len(found) > maxCandidates {
				return nil, fmt.Errorf("more than %d branches: %w", maxCandidates, elffile.ErrTooLarge)
			}
		}
		if uint64(len(chunk)) == size-at {
			break
		}
		at += uint64(len(chunk)) - (branchBytes - 1)
	}
	return found, nil
}

// branchesTo appends the addresses of what would be a call of or jump to target.
func branchesTo(found []uint64, code []byte, addr, target uint64) []uint64 {
	// The distance counts from the end of the branch: with its position added, it is the same for
	// all branches to target.
	distance := uint32(target - addr - branchBytes)
	for at := 0; at+branchBytes <= len(code); at++ {
		if binary.LittleEndian.Uint32(code[at+1:]) != distance-uint32(at) {
			continue
		}
		if code[at] != 0xe8 && code[at] != 0xe9 {
			continue
		}
		if addr+uint64(at)+branchBytes+uint64(int64(int32(distance-uint32(at)))) == target {
			found = append(found, addr+uint64(at))
		}
	}
	return found
}
