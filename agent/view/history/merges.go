package history

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
)

// levelLength is how long windows of a level are; 0 for those that stay as they came.
var levelLength = [levels]time.Duration{0, time.Minute, 10 * time.Minute}

// tidy removes what is too old, and merges the windows of one segment that is old enough.
func (s *Store) tidy() {
	ages, later := make([]time.Duration, len(s.segments)), time.Duration(0)
	for i := len(s.segments) - 1; i >= 0; i-- {
		ages[i] = later
		if later += s.segments[i].covered; later < 0 {
			later = math.MaxInt64
		}
	}
	var due *segment
	level := 0
	for i, g := range slices.Clone(s.segments) {
		switch to := s.levelOf(ages[i]); {
		case s.open != nil && s.open.segment == g:
		case ages[i] > s.o.Keep:
			_ = s.remove(g, RemovedAge) // It counts and logs what fails, which is tried again.
		case due == nil && to > g.level && !g.stale() && s.added >= g.retry:
			due, level = g, to
		}
	}
	if due == nil {
		return
	}
	err := proc.Catch(func() error { return s.merge(due, level) })
	if err == nil || errors.Is(err, errRemoved) {
		return
	}
	due.tries++
	due.retry = s.added + 1<<min(due.tries, maxBackOff)
	s.fail(FailedMerge, due.tries == 1,
		"cannot merge windows of the history; retrying with increasing delays",
		fmt.Errorf("segment %v: %w", due.segmentName, err))
}

// maxBackOff bounds the time to the next try of a merge that failed: 1 << 9 windows of ten seconds
// are an hour and a half.
const maxBackOff = 9

// levelOf is the level of a segment of that age.
func (s *Store) levelOf(age time.Duration) int {
	switch {
	case age > s.o.Medium:
		return 2
	case age > s.o.Fine:
		return 1
	}
	return 0
}

// merge replaces a segment by one of a higher level. The new one is complete before the old one
// goes.
func (s *Store) merge(old *segment, level int) error {
	f, info, err := s.o.open.segment(s.dir, old.segmentName, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	var index scanner
	// Others may have put it there.
	if err := index.scan(f, info.Size()); errors.Is(err, errForeign) || errors.Is(err, errVersion) {
		s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == old })
		s.count(func(*Stats) {})
		return nil
	} else if err != nil {
		return err
	}
	if damaged := index.damaged(false); damaged > 0 {
		s.leave(old, damaged)
		return nil
	}
	name := segmentName{old.number, level}
	temp, err := s.createFile(name.String() + temporary)
	if err != nil {
		return err
	}
	// It counts as long as it is written, next to the one that it replaces.
	g := &segment{segmentName: name, size: int64(len(magic))}
	at := slices.Index(s.segments, old)
	s.segments = slices.Insert(s.segments, at+1, g)
	complete := false // also not after a panic
	defer func() {
		if temp.Close(); complete {
			return
		}
		s.dir.Remove(name.String() + temporary)
		s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == g })
		s.count(func(*Stats) {})
	}()
	names := digest.NewNames(nil)
	m := merging{s: s, names: names, from: newDecoder(f, names),
		to: openSegmentFile{g, temp, newEncoder(newTables(names))}, old: old}
	length := levelLength[level].Nanoseconds()
	group := func(e *entry) int64 { return e.start.UnixNano() / length }
	for i := 0; i < len(index.entries) && err == nil; {
		next := i + 1
		for next < len(index.entries) && group(&index.entries[next]) == group(&index.entries[i]) {
			next++
		}
		err = m.window(index.entries[i:next])
		i = next
		s.addQueued() // an hour takes seconds to merge, and minutes where the agent has a twentieth of a CPU
	}
	if errors.Is(err, errMalformed) {
		s.leave(old, m.damaged)
		return nil
	}
	if err == nil && m.removed() {
		err = errRemoved
	}
	if err != nil {
		return fmt.Errorf("merge windows of the history: %w", err)
	}
	if err := unix.Fdatasync(int(temp.Fd())); err != nil {
		return fmt.Errorf("merge windows of the history: %w", err)
	}
	if _, err := s.dir.Lstat(name.String()); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("merge windows of the history: %v is a file of others", name)
	}
	if err := s.dir.Rename(name.String()+temporary, name.String()); err != nil {
		return fmt.Errorf("merge windows of the history: %w", err)
	}
	complete = true
	if err := errors.Join(s.lock.Sync(), s.dir.Remove(old.String())); err != nil { // the directory's
		s.o.Log.Warn("cannot remove a merged segment of the history", "err", err) // until the history is opened again
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == old })
	s.count(func(n *Stats) { n.Merges++ })
	return nil
}

// leave leaves a segment as it is, of which so many bytes are damaged. What is intact in it could
// be merged, but damaged parts would go without a trace.
func (s *Store) leave(g *segment, damaged int64) {
	g.damaged = damaged
	s.count(func(*Stats) {})
	s.warnDamaged(g)
}

// merging is a segment on its way to a higher level.
type merging struct {
	s     *Store
	names *digest.Names
	from  *decoder
	to    openSegmentFile
	room  digest.Arena
	spare digest.Spare
	old   *segment
	// damaged is the size of the body that is not right; 0 if none was found.
	damaged int64
}

// errRemoved is the error of a merge whose segment had to make room.
var errRemoved = errors.New("removed to make room")

// removed reports whether either segment had to make room.
func (m *merging) removed() bool {
	return !slices.Contains(m.s.segments, m.old) || !slices.Contains(m.s.segments, m.to.segment)
}

// window writes one window of several.
func (m *merging) window(entries []entry) error {
	var (
		sum  = digest.NewMerger(m.names, &m.spare)
		used sums
	)
	for i := range entries {
		e := &entries[i]
		w, err := m.from.window(e, &Selection{})
		if errors.Is(err, errRead) {
			return err
		}
		if err != nil {
			m.damaged = int64(e.bodySize)
			return errors.Join(errMalformed, err)
		}
		sum.Add(w, e.end)
		for _, one := range e.services() {
			used.get(one.Service).add(&one)
		}
	}
	m.room.Reset()
	w := sum.Finish(digest.MaxContexts, &m.room)
	h := header{span{w.Start, sum.End, w.Duration}, used.list}
	sum.Release()
	record, err := m.to.record(&h, w)
	if err != nil {
		return err
	}
	if err := m.s.reserve(int64(len(record))); err != nil {
		return err
	}
	if m.removed() {
		return errRemoved
	}
	if _, err := m.to.f.WriteAt(record, m.to.size); err != nil {
		return err
	}
	m.to.size += int64(len(record))
	m.to.add(h.span)
	m.s.count(func(n *Stats) { n.Bytes += uint64(len(record)) })
	return nil
}
