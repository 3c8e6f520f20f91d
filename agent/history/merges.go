package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// levelLength is how long windows of a level are; 0 for those that stay as they came.
var levelLength = [levels]time.Duration{0, time.Minute, 10 * time.Minute}

// tidy removes what is too old, and merges the windows of one segment that is old enough.
func (s *Store) tidy() error {
	now := s.o.Now()
	// A segment is at least as old as those after it, whatever the clock said when it was written: it may have been wrong.
	// One without windows, whose first one found no room on the disk, says nothing about others.
	ends, end := make([]time.Time, len(s.segments)), now
	for i := len(s.segments) - 1; i >= 0; i-- {
		if g := s.segments[i]; g.windows > 0 && g.end.Before(end) {
			end = g.end
		}
		ends[i] = end
	}
	var old *segment
	level := 0
	for i, g := range slices.Clone(s.segments) {
		age := now.Sub(ends[i])
		if s.open != nil && s.open.segment == g {
			continue
		}
		if age > s.o.Keep {
			if err := s.remove(g, RemovedAge); err != nil {
				return err
			}
			continue
		}
		if to := s.levelOf(age); old == nil && to > g.level {
			old, level = g, to
		}
	}
	if old == nil {
		return nil
	}
	if err := s.merge(old, level); !errors.Is(err, errRemoved) {
		return err
	}
	return nil
}

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

// merge replaces a segment by one of a higher level. The new one is complete before the old one goes.
func (s *Store) merge(old *segment, level int) error {
	f, info, err := openSegment(s.dir, old.segmentName)
	if err != nil {
		return err
	}
	defer f.Close()
	var index scanner
	index.scan(f, info.Size())
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
	m := merging{s: s, from: decoder{f: f}, to: openSegmentFile{g, temp, newEncoder()}, old: old}
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
	if errors.Is(err, errMalformed) { // what can be read stays
		err = nil
	}
	if err == nil && m.removed() {
		err = errRemoved
	}
	if err == nil && g.windows == 0 { // nothing can be read
		if err = s.dir.Remove(old.String()); err == nil {
			s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == old })
			s.countCut(old, info.Size())
			err = errRemoved
		}
	}
	if err != nil {
		return fmt.Errorf("merge windows of the history: %w", err)
	}
	if err := unix.Fdatasync(int(temp.Fd())); err != nil {
		return fmt.Errorf("merge windows of the history: %w", err)
	}
	if err := s.dir.Rename(name.String()+temporary, name.String()); err != nil {
		return fmt.Errorf("merge windows of the history: %w", err)
	}
	complete = true
	if err := errors.Join(s.lock.Sync(), s.dir.Remove(old.String())); err != nil { // the directory's
		s.o.Log.Warn("a merged segment of the history stays", "err", err) // until the history is opened again
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == old })
	s.count(func(n *Stats) { n.Merges++ })
	s.countCut(old, info.Size()-m.read)
	return nil
}

// countCut counts bytes of a segment that could not be read when its windows were merged, whether bodies or headers are damaged.
func (s *Store) countCut(old *segment, bytes int64) {
	if bytes <= 0 {
		return
	}
	s.o.Log.Warn("cut off a damaged end of a segment of the history", "segment", old.String(), "bytes", bytes)
	s.count(func(n *Stats) { n.Cut += uint64(bytes) })
}

// merging is a segment on its way to a higher level.
type merging struct {
	s    *Store
	from decoder
	to   openSegmentFile
	old  *segment
	read int64 // the end of the last record that was read
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
		sum    merger
		h      header
		broken error
	)
	for i := range entries {
		e := &entries[i]
		p, err := m.from.window(e, &Selection{})
		if err != nil {
			broken = errors.Join(errMalformed, err)
			break
		}
		m.read = e.next()
		sum.add(p, e.end)
		h.sums = addSums(h.sums, e.sums)
	}
	if sum.index == nil {
		return broken
	}
	p := sum.finish(maxContexts)
	h.start, h.end, h.covered = p.Start, sum.end, p.Duration
	record, err := m.to.record(&h, p)
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
	m.to.add(&h)
	m.s.count(func(n *Stats) { n.Bytes += uint64(len(record)) })
	return broken
}

// addSums adds up two lists by service.
func addSums(to, from []Sum) []Sum {
	for i := range from {
		at := slices.IndexFunc(to, func(s Sum) bool { return s.Service == from[i].Service })
		switch {
		case at >= 0:
			to[at].add(&from[i])
		case len(to) < maxSums:
			to = append(to, from[i])
		default: // under no name, as sumsOf has them
			other := from[i]
			other.Service = ""
			if at := slices.IndexFunc(to, func(s Sum) bool { return s.Service == "" }); at >= 0 {
				to[at].add(&other)
			} else {
				to = append(to, other)
			}
		}
	}
	return to
}
