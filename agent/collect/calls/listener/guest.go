package listener

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An Entry is the address where calls of a compiled method arrive.
type Entry struct {
	Address uint64 // address of the first instruction that all calls execute: behind the check of the receiver's class
	Version uint32 // as in vmruntime.Site; 0 if it has none
}

// EntryOf returns where calls of a compilation arrive. It returns false if none do: the code is no
// longer entered, or only in the middle of a loop.
func EntryOf(c vmruntime.Compilation) (Entry, bool) {
	ok := c.InUse && c.EntryBCI < 0 && c.VerifiedEntry != 0
	return Entry{Address: c.VerifiedEntry, Version: c.Version}, ok
}

// A Guest is a process to watch.
type Guest struct {
	proc.Identity
	// Threads are the threads to watch, those with most calls first: those beyond
	// breakpoint.MaxThreads are left out. If nil, the recently running threads are found out,
	// which takes some 10 us per thread twice a second.
	Threads []int
	// Memory is the guest's. The code at entries is compared before and after a window.
	Memory vmruntime.Memory
	// Current reports whether calls of the method still arrive at an entry. Listen calls it before
	// and after a window, in its own goroutine. It is nil if only the code itself can show that.
	Current func(Entry) bool
	// Take receives what an Engine observed in a window that is not void, instead of the agent's
	// event stream. If it returns watch.ErrChanged, the window becomes void. It is nil for guests
	// whose frames identify their code version.
	Take func(Result) error
}

// ErrJump: the code at an entry is a jump to other code, because the method was compiled again. The
// entry of the new version is needed.
var ErrJump = errors.New("the entry is a jump to other code")

// watched is how much code at an entry is compared: the whole prologue. HotSpot marks code that
// must not be entered any more there, by a jump (up to JDK 22) or in the entry barrier's constant.
const watched = 48 // bytes

// A snapshot is the code at the entries before a window.
type snapshot struct {
	guest   *Guest
	entries []Entry
	code    []watch.Code
}

// snap reads the code at the entries and checks that calls arrive there.
func snap(g *Guest, entries []Entry) (snapshot, error) {
	s := snapshot{guest: g, entries: entries}
	var err error
	if s.code, err = watch.ReadCode(g.Memory, watched, addresses(entries)...); err != nil {
		return s, err
	}
	for i, code := range s.code {
		if isJump(code.Bytes) {
			return s, fmt.Errorf("entry %#x: %w", entries[i].Address, ErrJump)
		}
	}
	return s, s.current()
}

// check returns watch.ErrChanged if the code differs now, or differed when a hit came.
func (s *snapshot) check(hits []Hit) error {
	if err := watch.CheckCode(s.guest.Memory, s.code); err != nil {
		return err
	}
	for _, h := range hits {
		e := s.entries[h.Entry]
		if k := h.Callee.Kind(); k == bpf.FrameNative || e.Version == 0 {
			continue // the kernel side has no versions for it
		} else if k != bpf.FrameJIT || h.Callee.CompileID() != e.Version {
			return fmt.Errorf("entry %#x: %w", e.Address, watch.ErrChanged)
		}
	}
	return s.current()
}

func (s *snapshot) current() error {
	if s.guest.Current == nil {
		return nil
	}
	for _, e := range s.entries {
		if !s.guest.Current(e) {
			return fmt.Errorf("entry %#x: %w", e.Address, watch.ErrChanged)
		}
	}
	return nil
}

func addresses(entries []Entry) (all []uint64) {
	for _, e := range entries {
		all = append(all, e.Address)
	}
	return all
}

// isJump reports whether code begins with an unconditional jump.
func isJump(code []byte) bool {
	if runtime.GOARCH == "arm64" {
		return code[3]&0xfc == 0x14 // b
	}
	return code[0] == 0xe9 || code[0] == 0xeb || // jmp
		code[0] == 0xff && code[1]&0x38 == 0x20 // jmp through memory or a register
}
