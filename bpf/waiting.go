package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxPages bounds the pages that are copied for one Waiting.Read: MAX_PAGES. A thread has a few of
// its own.
const maxPages = 4096

// maxWalks bounds how often a walk is repeated. Most stacks take some twenty: the pages of all
// threads are copied together.
const maxWalks = 128

// askedThread is struct asked_thread of waiting.bpf.c.
type askedThread struct{ Since, Switches uint64 }

// A PageCopy is memory of a process, from the beginning of a page: so many bytes of it. Layout:
// waiting.bpf.c.
type PageCopy struct {
	Length uint64
	Bytes  [2 * 4096]byte
}

// A Waiting reads stacks of threads that are off the CPU, from outside.
type Waiting struct {
	objects struct {
		WaitingMaps
		Read        *ebpf.Program `ebpf:"read_waiting"`
		ReadVirtual *ebpf.Program `ebpf:"read_virtual"`
	}
	tasks *link.Iter
	lack  error // why virtual threads cannot be read; nil if they can
}

// unlockedWalk bounds one walk of a waiting thread's stack. It is at the agent's expense, with
// interrupts on and no lock.
const unlockedWalk = 5 * time.Millisecond

// LoadWaiting loads the program next to o. Close comes before that of o.
func (o *Objects) LoadWaiting() (*Waiting, error) {
	spec, err := LoadWaiting()
	if err != nil {
		return nil, fmt.Errorf("read object of waiting threads: %w", err)
	}
	if err := spec.Variables["walk_ns"].Set(uint64(unlockedWalk)); err != nil {
		return nil, fmt.Errorf("set constants: %w", err)
	}
	w := &Waiting{}
	others := spec.Copy()
	if w.lack = o.LoadBeside(spec, &w.objects); w.lack != nil { // an older kernel may refuse that one
		var load struct {
			WaitingMaps
			Read *ebpf.Program `ebpf:"read_waiting"`
		}
		delete(others.Programs, "read_virtual")
		if err := o.LoadBeside(others, &load); err != nil {
			return nil, fmt.Errorf("load the program that reads stacks of waiting threads: %w", err)
		}
		w.objects.WaitingMaps, w.objects.Read = load.WaitingMaps, load.Read
	}
	if w.tasks, err = link.AttachIter(link.IterOptions{Program: w.objects.Read}); err != nil {
		return nil, errors.Join(fmt.Errorf("read stacks of waiting threads: %w", err), w.Close())
	}
	return w, nil
}

// Read calls each for the stacks of up to 1,024 threads (MAX_ASKED) of one process, as records of
// an Observation (ObservedWait) that are valid until it returns. The value of a thread is returned
// as WaitSince; WaitDelay and WaitMean are 0. Threads that are on a CPU, or go on meanwhile, are
// left out. Copy fills copies of the process's memory from the beginnings of those pages. Its error
// is returned. Stacks that take longer than until end are left out. Calls must not overlap.
func (w *Waiting) Read(
	threads map[uint32]uint64, end time.Time, copy func(at []uint64, to []PageCopy) error, each func(raw []byte),
) error {
	asked := maps.Clone(threads)
	known := map[uint64]bool{}
	defer func() {
		for tid := range asked {
			w.objects.Asked.Delete(tid) // it is there
		}
		for at := range known {
			w.objects.Pages.Delete(at)
		}
	}()
	for tid, since := range asked {
		if err := w.objects.Asked.Put(tid, askedThread{Since: since}); err != nil {
			return fmt.Errorf("ask for the stack of thread %d: %w", tid, err)
		}
	}
	for walks := 0; walks < maxWalks && len(asked) > 0 && (walks == 0 || time.Now().Before(end)); walks++ {
		lacking, err := w.walk(func(tid uint32, raw []byte) {
			each(raw)
			delete(asked, tid)
			w.objects.Asked.Delete(tid)
		})
		if err != nil || len(lacking) == 0 || len(known)+len(lacking) > maxPages {
			return err
		}
		if err := w.copy(lacking, known, copy); err != nil {
			return err
		}
	}
	return nil
}

// askedVirtual is struct asked_virtual of waiting.bpf.c.
type askedVirtual struct {
	Header Header
	AskedVirtual
	Seen struct {
		Lacking, Size, Blocker, Waiter uint64
		State, Mounted                 uint32
	}
}

// An AskedVirtual is a virtual thread: the addresses of its Continuation and of the words that
// ReadVirtual reads. Waiter may be 0.
type AskedVirtual struct{ Continuation, Mounted, State, Blocker, Waiter uint64 }

// A SeenVirtual is what was read of a virtual thread, as of about one moment.
type SeenVirtual struct {
	Blocker, Waiter uint64
	State           uint32
	// Stack is a record of a Sample, valid until the next one; nil if the thread is on a carrier,
	// or was on none yet.
	Stack []byte
}

// States of virtual threads that were on no carrier yet, or will be on none again:
// java.lang.VirtualThread, JDK 21 and later.
const (
	virtualStarted    = 1
	virtualTerminated = 99
)

// ReadVirtual is Read for virtual threads of one process: it calls each for what was read of them,
// with the number of the thread in the list. Those of which something could not be read are left
// out. The records have of's process.
func (w *Waiting) ReadVirtual(
	of Header, threads []AskedVirtual, end time.Time, copy func(at []uint64, to []PageCopy) error,
	each func(i int, seen SeenVirtual),
) error {
	if w.lack != nil {
		return fmt.Errorf("load the program that reads virtual threads: %w", w.lack)
	}
	known := map[uint64]bool{}
	defer func() {
		for at := range known {
			w.objects.Pages.Delete(at)
		}
	}()
	asked := make([]int, len(threads))
	for i := range asked {
		asked[i] = i
	}
	record := make([]byte, w.objects.VirtualStack.ValueSize())
	for walks := 0; walks < maxWalks && len(asked) > 0 && (walks == 0 || time.Now().Before(end)); walks++ {
		var lacking []uint64
		var left []int
		for _, i := range asked {
			ask := askedVirtual{Header: of, AskedVirtual: threads[i]}
			if _, err := w.objects.ReadVirtual.Run(&ebpf.RunOptions{Context: &ask, ContextOut: &ask}); err != nil {
				return fmt.Errorf("read a virtual thread: %w", err)
			}
			if ask.Seen.Lacking != 0 {
				lacking, left = append(lacking, ask.Seen.Lacking-1), append(left, i)
				continue
			}
			off := ask.Seen.Mounted == 0 && virtualStarted < ask.Seen.State && ask.Seen.State != virtualTerminated
			if off && ask.Seen.Size == 0 {
				continue // its stack could not be read
			}
			seen := SeenVirtual{Blocker: ask.Seen.Blocker, Waiter: ask.Seen.Waiter, State: ask.Seen.State}
			if ask.Seen.Size > 0 && ask.Seen.Size <= uint64(len(record)) {
				if err := w.objects.VirtualStack.Lookup(uint32(0), record); err != nil {
					return fmt.Errorf("read a virtual thread: %w", err)
				}
				seen.Stack = record[:ask.Seen.Size]
			}
			each(i, seen)
		}
		asked = left
		slices.Sort(lacking)
		lacking = slices.Compact(lacking)
		if len(lacking) == 0 || len(known)+len(lacking) > maxPages {
			return nil
		}
		if err := w.copy(lacking, known, copy); err != nil {
			return err
		}
	}
	return nil
}

// copy passes copies of pages on, and notes them as known.
func (w *Waiting) copy(lacking []uint64, known map[uint64]bool, copy func(at []uint64, to []PageCopy) error) error {
	pages := make([]PageCopy, len(lacking))
	if err := copy(lacking, pages); err != nil {
		return err
	}
	for i, at := range lacking {
		if err := w.objects.Pages.Put(at, &pages[i]); err != nil {
			return fmt.Errorf("pass on a page: %w", err)
		}
		known[at] = true
	}
	return nil
}

// walk walks all stacks once. It calls each for the whole ones, and returns the pages that the
// others lack, each once.
func (w *Waiting) walk(each func(tid uint32, raw []byte)) (lacking []uint64, err error) {
	tasks, err := w.tasks.Open()
	if err != nil {
		return nil, fmt.Errorf("read stacks of waiting threads: %w", err)
	}
	defer tasks.Close()
	all, err := io.ReadAll(tasks)
	if err != nil {
		return nil, fmt.Errorf("read stacks of waiting threads: %w", err)
	}
	const head = 16
	for len(all) >= head {
		page, size := binary.NativeEndian.Uint64(all), binary.NativeEndian.Uint64(all[8:])
		all = all[head:]
		switch {
		case size > uint64(len(all)):
			return nil, fmt.Errorf("a record of a waiting thread's stack has %d bytes of %d", len(all), size)
		case page != 0:
			lacking = append(lacking, page-1)
		case size > 0:
			var h Sample
			if err := DecodeSample(all[:size], &h); err != nil {
				return nil, err
			}
			each(h.Tid, all[:size])
		}
		all = all[size:]
	}
	slices.Sort(lacking)
	return slices.Compact(lacking), nil
}

// Maps returns the generated struct of the maps.
func (w *Waiting) Maps() any { return w.objects.WaitingMaps }

// Close detaches and frees the program.
func (w *Waiting) Close() error {
	var err error
	if w.tasks != nil {
		err = w.tasks.Close()
	}
	return errors.Join(err, w.objects.Read.Close(), w.objects.ReadVirtual.Close(), w.objects.WaitingMaps.Close())
}
