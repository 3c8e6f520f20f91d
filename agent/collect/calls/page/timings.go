package page

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// The memory with a process's timings: struct vmprof_timings_ of contrib/guest/vmprof.h. The agent
// reads it by pread, which copies: later changes or truncation by the process do not affect the
// agent.
const (
	timingsVersion = 1
	timingsRings   = bpf.PageSlots
	ringEntries    = 4096
	entrySize      = 48
	ringSize       = 128

	guestAt      = 0 // offsets, in bytes
	unslottedAt  = 4
	loopsAt      = 8
	auditedAt    = 1024
	ringsAt      = 4096
	entriesAt    = 12288
	tailAt       = 64 // in a ring
	timingsSize  = entriesAt + timingsRings*ringEntries*entrySize
	auditedSlots = 256
	// maxAudited is how many methods of a process are audited: its hash table stays sparse.
	maxAudited = 64
	// maxDuration is longer than any timing can be.
	maxDuration = uint64(24 * time.Hour)
)

// An entry is one timing as a guest wrote it. Its times are ns.
type entry struct {
	sequence        uint32
	method, version uint32
	loop            uint32 // 0: the invocation
	duration, part  uint64
	runs            uint32
	timers, points  uint32
	thread          uint32
}

func decodeEntry(b []byte) entry {
	_ = b[entrySize-1]
	return entry{
		sequence: u32(b), method: u32(b[4:]), version: u32(b[8:]), loop: u32(b[12:]), duration: u64(b[16:]),
		part: u64(b[24:]),
		runs: u32(b[32:]), timers: u32(b[36:]), points: u32(b[40:]), thread: u32(b[44:]),
	}
}

// valid reports whether the entry can be the one with that number, counted from 1.
func (e *entry) valid(number uint64) bool {
	return e.sequence == uint32(number) && e.duration <= maxDuration && e.part <= e.duration && e.runs > 0 &&
		uint64(e.timers) <= e.duration && uint64(e.points) <= e.duration // each takes at least 1 ns
}

// Loops of method 0, which stands for calibrations.
const (
	emptyInvocation = 0 // the timing of an empty invocation
	wholeTiming     = 1 // how long taking the timing of an invocation lasts
	emptyIteration  = 2 // the timing of an empty iteration
	calibrations    = 3
)

// A memory is the memory shared by agent and process.
type memory struct {
	file *os.File
	ring [timingsRings]ringState
	next int // ring where the next drain begins
}

type ringState struct {
	tail uint64              // entries read
	lost [lostByGuest]uint64 // counted by the process, at the last drain
	bad  uint64              // entries that are not valid timings, or were overwritten
}

// Losses that processes count in a ring, in the order of the counters in struct vmprof_ring_.
const (
	lostFull = iota
	lostDeep
	lostAbandoned
	lostUnmatched
	lostByGuest
)

// newMemory makes memory for one guest. Loops says whether iterations are timed.
func newMemory(loops bool) (_ *memory, err error) {
	fd, err := unix.MemfdCreate("vmprof-timings", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("vmprof-timings", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory for timings: %w", err)
	}
	m := &memory{file: os.NewFile(uintptr(fd), "vmprof-timings")}
	defer func() {
		if err != nil {
			m.file.Close()
		}
	}()
	if err := m.file.Truncate(timingsSize); err != nil {
		return nil, fmt.Errorf("make memory for timings: %w", err)
	}
	// The process cannot change its size: so its cost is bounded.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, fmt.Errorf("seal memory for timings: %w", err)
	}
	if loops {
		err = m.write32(loopsAt, 1)
	}
	return m, err
}

func (m *memory) write32(at int64, v uint32) error {
	_, err := m.file.WriteAt(binary.NativeEndian.AppendUint32(nil, v), at)
	return err
}

// word returns the word at that offset, 0 if it cannot be read.
func (m *memory) word(at int64) uint32 {
	var b [4]byte
	if _, err := m.file.ReadAt(b[:], at); err != nil {
		return 0
	}
	return u32(b[:])
}

// auditedSlot is the slot where the process looks for a method first.
func auditedSlot(id uint32) uint32 { return id * 0x9e3779b1 >> 24 }

// audit writes the table of audited methods.
func (m *memory) audit(ids []uint32) error {
	var slots [auditedSlots]uint32
	for _, id := range ids {
		i := auditedSlot(id)
		for slots[i] != 0 && slots[i] != id {
			i = (i + 1) % auditedSlots
		}
		slots[i] = id
	}
	b := make([]byte, 0, 4*auditedSlots)
	for _, id := range slots {
		b = binary.NativeEndian.AppendUint32(b, id)
	}
	_, err := m.file.WriteAt(b, auditedAt)
	return err
}

// drain hands out new entries, about most of them at most. The others wait in their rings.
func (m *memory) drain(most int, take func(*entry)) error {
	heads := make([]byte, timingsRings*ringSize)
	if _, err := m.file.ReadAt(heads, ringsAt); err != nil {
		return fmt.Errorf("read timings: %w", err)
	}
	first := m.next
	for k := range timingsRings {
		i := (first + k) % timingsRings
		r, head := &m.ring[i], heads[i*ringSize:]
		for c := range r.lost {
			r.lost[c] = min(u64(head[8+8*c:]), 1<<53)
		}
		if most <= 0 {
			continue
		}
		n, err := m.drainRing(i, u64(head), take)
		if err != nil {
			return err
		}
		if most -= n; most <= 0 {
			m.next = (i + 1) % timingsRings
		}
	}
	return nil
}

// drainRing hands out the entries of one ring up to head, and returns how many there were.
func (m *memory) drainRing(i int, head uint64, take func(*entry)) (int, error) {
	r := &m.ring[i]
	n := head - r.tail
	switch {
	case n == 0:
		return 0, nil
	case n > ringEntries: // the process overwrote its counter
		r.bad++
		r.tail = head
	}
	begin := int64(entriesAt + i*ringEntries*entrySize)
	for r.tail != head {
		at := r.tail % ringEntries
		chunk := min(head-r.tail, ringEntries-at, 512)
		b := make([]byte, chunk*entrySize)
		if _, err := m.file.ReadAt(b, begin+int64(at*entrySize)); err != nil {
			return 0, fmt.Errorf("read timings: %w", err)
		}
		for one := range slices.Chunk(b, entrySize) {
			e := decodeEntry(one)
			if r.tail++; e.valid(r.tail) {
				take(&e)
			} else {
				r.bad++
			}
		}
	}
	_, err := m.file.WriteAt(binary.NativeEndian.AppendUint64(nil, r.tail), int64(ringsAt+i*ringSize+tailAt))
	return int(min(n, ringEntries)), err
}

// A sampler keeps the latest values of a repeated measurement.
type sampler struct {
	values []float64 // ns
	next   int
	count  uint64
	fresh  bool // median and within are up to date
	median float64
	within float64 // standard error
}

const (
	samplerSize    = 512
	maxCalibration = uint64(time.Millisecond)
)

func (s *sampler) add(ns uint64) {
	v := float64(min(ns, maxCalibration))
	if len(s.values) < samplerSize {
		s.values = append(s.values, v)
	} else {
		s.values[s.next] = v
		s.next = (s.next + 1) % samplerSize
	}
	s.count++
	s.fresh = s.fresh && s.count%16 != 0 // sorting costs more than adding a value
}

// get returns the median and its standard error. The median is robust against interruptions.
func (s *sampler) get() (median, within float64) {
	n := len(s.values)
	if n == 0 {
		return 0, 0
	}
	if !s.fresh {
		sorted := slices.Sorted(slices.Values(s.values))
		s.median = sorted[n/2]
		// The quartiles of a normal distribution are 1.349 standard deviations apart; a median
		// varies by 1.2533 of one.
		s.within = 1.2533 * (sorted[3*n/4] - sorted[n/4]) / 1.349 / math.Sqrt(float64(n))
		s.fresh = true
	}
	return s.median, s.within
}
