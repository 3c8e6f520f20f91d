// Package intern completes samples that refer to earlier ones for the outermost frames of their
// stacks, as most do (bpf/sample/intern.bpf.h).
//
//	stacks, err := intern.New(kernel, log)
//	err = stacks.Full(raw, &sample)  // a record that others may refer to
//	err = stacks.Short(raw, &sample) // one that refers to another
//
// The kernel side sends what it has not sent yet. So nothing is evicted here: when there is too
// much, the seed of all tags changes, and everything is sent again.
package intern

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// ErrUnknown: a sample refers to frames, or to a thread's name, that were not received or were
// forgotten.
var ErrUnknown = errors.New("sample refers to unknown frames")

const (
	step = bpf.SuffixStep

	// maxKnown bounds the suffixes, and the threads, that are known with one seed; the kernel side
	// keeps as many tags. Each takes about 80 bytes. There are more only until the records that
	// were in the ring when the seed changed have been read.
	maxKnown = 1 << 16
	// settled is how long after a change of the seed records may still have the last one. The
	// programs that write them are never preempted, but the CPU of a virtual machine may be.
	settled = 100 * time.Millisecond
)

// Kernel is the kernel side: bpf.Objects.
type Kernel interface {
	Reseed(seed uint64) error
	ForgetSuffix(tag uint64) error
	ForgetThread(tid uint32) error
}

// Stacks are the known stacks and threads. One goroutine may use them.
type Stacks struct {
	kernel Kernel
	log    *slog.Logger
	now    func() time.Duration // CLOCK_MONOTONIC

	current  *generation
	last     *generation   // generation of the seed before, until no record has it
	reseeded time.Duration // when the seed was changed
	limit    int           // maxKnown

	short bpf.ShortSample // scratch, as are the frames of a completed sample
	user  []bpf.Frame
	comm  [16]byte
}

// New returns Stacks, and makes the kernel side refer to earlier samples from now on.
func New(kernel Kernel, log *slog.Logger) (*Stacks, error) {
	s := &Stacks{kernel: kernel, log: log, now: proc.Monotonic, current: newGeneration(), limit: maxKnown}
	return s, kernel.Reseed(seed())
}

// seed returns a new one. No target may guess it: it could make its stacks be taken for others'.
func seed() uint64 { return rand.Uint64() | 1 }

// Full decodes a record that later ones may refer to. The result is valid as long as the record.
func (s *Stacks) Full(raw []byte, into *bpf.Sample) error {
	if err := bpf.DecodeSample(raw, into); err != nil {
		return err
	}
	s.age(into.Time)
	g := s.current
	g.name(into)
	root, ok := g.tags[into.Root]
	if !ok {
		root = g.add(into.Root, suffix{context: uint32(len(g.contexts))})
		g.contexts = append(g.contexts, context{ownerOf(into.Header), into.Attachment, into.ClassEpoch})
	}
	into.Callers = g.learn(into.Root, 0, root, into.User)
	return nil
}

// Short decodes a record that refers to an earlier one, and completes it. The result is valid until
// the next call, and as long as the record. If it is ErrUnknown, the kernel side was asked to send
// everything again.
func (s *Stacks) Short(raw []byte, into *bpf.Sample) error {
	if err := bpf.DecodeShort(raw, &s.short); err != nil {
		return err
	}
	h := &s.short.Header
	s.age(h.Time)
	g, at, ok := s.find(s.short.Base)
	if !ok || g.contexts[g.suffixes.at(at).context].owner != ownerOf(h) {
		s.report(s.kernel.ForgetSuffix(s.short.Base))
		return ErrUnknown
	}
	if s.comm, ok = s.nameOf(h); !ok {
		s.report(s.kernel.ForgetThread(h.Tid))
		return ErrUnknown
	}
	known := int(g.suffixes.at(at).frames)
	if own := len(s.short.User); own+known > bpf.MaxUserFrames || own > 1 && known%step != 0 {
		return fmt.Errorf("short sample of %d frames before %d: %w", own, known, bpf.ErrMalformed)
	}
	s.user = append(s.user[:0], s.short.User...)
	c := g.contexts[g.suffixes.at(at).context]
	s.user = g.appendFrames(s.user, at)
	*into = bpf.Sample{
		Header: h, End: bpf.WalkEnd(s.short.End), Flags: s.short.Flags, CPU: s.short.Cpu, ClassEpoch: c.classEpoch,
		Attachment: c.attachment,
		Comm:       s.comm[:], User: s.user, Kernel: s.short.Kernel,
		Callers: g.learn(s.short.Base, known, at, s.user),
	}
	return nil
}

// find returns the suffix with that tag.
func (s *Stacks) find(tag uint64) (g *generation, at uint32, ok bool) {
	if at, ok = s.current.tags[tag]; ok || s.last == nil {
		return s.current, at, ok
	}
	at, ok = s.last.tags[tag]
	return s.last, at, ok
}

// nameOf returns the name of a record's thread.
func (s *Stacks) nameOf(h *bpf.Header) (comm [16]byte, ok bool) {
	t, ok := s.current.threads[h.Tid]
	if (!ok || t.owner != ownerOf(h)) && s.last != nil {
		t, ok = s.last.threads[h.Tid]
	}
	return t.comm, ok && t.owner == ownerOf(h)
}

// age looks at the time of a record: the last generation is forgotten when no more records need it,
// and there is a new one when the current one is full.
func (s *Stacks) age(time_ uint64) {
	switch at := time.Duration(time_); {
	case s.last != nil && at > s.reseeded+settled:
		s.last = nil
	case s.last == nil && max(s.current.suffixes.n, len(s.current.threads)) >= s.limit:
		if err := s.kernel.Reseed(seed()); err != nil {
			s.report(err)
			return
		}
		s.last, s.current, s.reseeded = s.current, newGeneration(), s.now()
	}
}

func (s *Stacks) report(err error) {
	if err != nil {
		s.log.Warn("the kernel side does not send again what is unknown", "err", err)
	}
}

// An owner is a process.
type owner struct {
	start     uint64
	pid, exec uint32
}

func ownerOf(h *bpf.Header) owner { return owner{h.Start, h.Pid, h.Exec} }

// A context is what samples have in common that share frames.
type context struct {
	owner
	attachment, classEpoch uint32
}

// A suffix is the outermost frames of a stack: those of its parent, and up to four before them.
type suffix struct {
	own     [step]bpf.Frame // outermost first
	parent  uint32          // the empty suffix is its own
	context uint32
	frames  uint16 // number of frames with those of the parent
}

// suffixes are a list of them, in pieces that stay where they are as it grows.
type suffixes struct {
	pieces []*[suffixPiece]suffix
	n      int
}

const suffixPiece = 1 << 10

func (l *suffixes) at(i uint32) *suffix { return &l.pieces[i/suffixPiece][i%suffixPiece] }

func (l *suffixes) add(s suffix) {
	if l.n == len(l.pieces)*suffixPiece {
		l.pieces = append(l.pieces, new([suffixPiece]suffix))
	}
	l.n++
	*l.at(uint32(l.n - 1)) = s
}

type thread struct {
	owner
	comm [16]byte
}

// A generation is what was received with one seed. It has no pointers that the garbage collector
// would follow.
type generation struct {
	tags     map[uint64]uint32 // index of the suffix
	suffixes suffixes
	contexts []context
	threads  map[uint32]thread
}

func newGeneration() *generation {
	return &generation{tags: map[uint64]uint32{}, threads: map[uint32]thread{}}
}

// name notes the name of a sample's thread.
func (g *generation) name(s *bpf.Sample) {
	t := thread{owner: ownerOf(s.Header)}
	copy(t.comm[:], s.Comm)
	g.threads[s.Tid] = t
}

// add returns the suffix with that tag, which it adds if it is not known.
func (g *generation) add(tag uint64, s suffix) uint32 {
	at, ok := g.tags[tag]
	if !ok {
		at = uint32(g.suffixes.n)
		if s.frames == 0 {
			s.parent = at
		}
		g.suffixes.add(s)
		g.tags[tag] = at
	}
	return at
}

// learn adds the suffixes of a stack that the kernel side takes to be known when it has sent the
// stack. The suffix at is known already: it has the tag, and so many frames. It returns the tag of
// all frames but the innermost one.
func (g *generation) learn(tag uint64, known int, at uint32, user []bpf.Frame) uint64 {
	for callers := len(user) - 1; known < callers; {
		s := suffix{parent: at, context: g.suffixes.at(at).context}
		n := copyReversed(s.own[:], user[max(callers-known-step, 0)+1:callers-known+1])
		known += n
		tag, s.frames = bpf.SuffixTag(tag, s.own), uint16(known)
		at = g.add(tag, s)
	}
	return tag
}

// copyReversed copies the last frames of from, the last one first, as many as to has room for. It
// returns how many these are.
func copyReversed(to, from []bpf.Frame) (n int) {
	for n < len(to) && n < len(from) {
		to[n] = from[len(from)-1-n]
		n++
	}
	return n
}

// appendFrames appends the frames of a suffix to buf, innermost first.
func (g *generation) appendFrames(buf []bpf.Frame, at uint32) []bpf.Frame {
	n := len(buf)
	frames := int(g.suffixes.at(at).frames)
	buf = slices.Grow(buf, frames)[:n+frames]
	for n < len(buf) {
		s := g.suffixes.at(at)
		for i := int(s.frames) - int(g.suffixes.at(s.parent).frames) - 1; i >= 0; i-- {
			buf[n] = s.own[i]
			n++
		}
		at = s.parent
	}
	return buf
}
