package vmstructs

import (
	"errors"
	"iter"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Weave is a memory that reads for several functions at once. What leads from a method to its
// name is a chain of reads, each of which needs the one before; a system call takes longer than
// what it reads. Together runs many chains side by side, and reads the next step of all of them in
// one batch.
//
// The functions take turns on one thread: one of them runs until it reads, then the next. So they
// may share data without a lock, but what they share may have changed after each read.
type Weave struct {
	Memory vmruntime.Memory // memory that is read

	strand *strand           // strand that runs, nil outside of Together
	all    []vmruntime.Range // room for the ranges of readAll
}

// A strand is a function that Together runs.
type strand struct {
	resume func() (struct{}, bool) // runs it up to its next read; false at its end
	end    func()                  // ends it where it is
	pause  func(struct{}) bool     // is called by it to read; false if it was ended
	ranges []vmruntime.Range       // ranges that it wants
	err    error                   // error of the read
}

// errEnded is the error of reads of a function that was ended, as another one panicked.
var errEnded = errors.New("reading was ended")

// Together runs functions whose reads are done together, and returns when all have ended. A
// function may call it, too. What a function panics with, Together panics with; the reads of all
// others fail then.
func (t Reader) Together(functions ...func()) {
	w, ok := t.Mem.(*Weave)
	if !ok || len(functions) < 2 {
		for _, f := range functions {
			f()
		}
		return
	}
	w.together(functions)
}

func (w *Weave) together(functions []func()) {
	outer := w.strand
	defer func() { w.strand = outer }()
	strands := make([]*strand, 0, len(functions))
	defer func() {
		for _, s := range strands { // there are some after a panic only
			w.strand = s
			s.end()
		}
	}()
	for _, f := range functions {
		s := &strand{}
		s.resume, s.end = iter.Pull(func(pause func(struct{}) bool) {
			s.pause = pause
			f()
		})
		strands = append(strands, s)
	}
	for {
		waiting := 0
		for _, s := range strands {
			w.strand = s
			if _, reads := s.resume(); reads {
				strands[waiting] = s
				waiting++
			}
		}
		clear(strands[waiting:])
		strands = strands[:waiting]
		w.strand = outer
		if waiting == 0 {
			return
		}
		w.readAll(strands)
	}
}

// Bounds on what is read at once: a Memory may refuse more.
const (
	wovenBytes  = 2 << 20
	wovenRanges = 32 << 10
	keptRanges  = 4 << 10 // between reads
)

// readAll reads what strands want, all together.
func (w *Weave) readAll(strands []*strand) {
	if len(strands) == 1 {
		strands[0].err = w.ReadBatch(strands[0].ranges)
		return
	}
	all := w.all
	if w.all = nil; w.strand != nil { // reads of several functions may be under way
		all = nil
	}
	defer func() {
		if clear(all[:cap(all)]); w.strand == nil && cap(all) <= keptRanges {
			w.all = all
		}
	}()
	for len(strands) > 0 {
		n, size := 0, 0
		all = all[:0]
		for _, s := range strands {
			more := 0
			for _, r := range s.ranges {
				more += len(r.Buf)
			}
			if n > 0 && (size+more > wovenBytes || len(all)+len(s.ranges) > wovenRanges) {
				break
			}
			all, size = append(all, s.ranges...), size+more
			n++
		}
		err := w.ReadBatch(all)
		at := 0
		for _, s := range strands[:n] {
			s.err = err
			for i := range s.ranges {
				s.ranges[i].OK = all[at].OK
				at++
			}
		}
		strands = strands[n:]
	}
}

// Read implements vmruntime.Memory.
func (w *Weave) Read(addr uint64, p []byte) error {
	if w.strand == nil {
		return w.Memory.Read(addr, p)
	}
	r := []vmruntime.Range{{Addr: addr, Buf: p}}
	if err := w.ReadBatch(r); err != nil {
		return err
	}
	if !r[0].OK {
		return w.Memory.Read(addr, p) // for its error
	}
	return nil
}

// ReadBatch implements vmruntime.Memory.
func (w *Weave) ReadBatch(ranges []vmruntime.Range) error {
	s := w.strand
	if s == nil {
		return w.Memory.ReadBatch(ranges)
	}
	s.ranges = ranges
	if !s.pause(struct{}{}) {
		return errEnded
	}
	s.ranges = nil
	return s.err
}
