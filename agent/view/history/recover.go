package history

import (
	"errors"
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
)

// recover reads what is there, and cuts off what a writer left incomplete in the last segment,
// which goes on. What is damaged or cannot be read is left alone and reported.
func (s *Store) recover() error {
	list, err := listSegments(s.dir)
	if err != nil {
		return err
	}
	s.next = list.next
	for _, name := range list.temporary {
		s.discard(name)
	}
	var cut int64
	whole := make(map[uint64]bool)
	for i, name := range list.segments {
		g := &segment{segmentName: name}
		lost, err := s.recoverSegment(g, i == len(list.segments)-1)
		switch {
		case errors.Is(err, errVersion):
			s.o.Log.Warn("cannot read a segment of the history; it is kept until it expires or its space is needed",
				"err", err)
		case err != nil:
			s.fail(FailedOpen, true, "a segment of the history is skipped", err)
		case g.damaged > 0:
			s.warnDamaged(g)
		}
		cut += lost
		whole[name.number] = err == nil && lost == 0 && !g.stale()
	}
	for _, name := range list.lower {
		if whole[name.number] {
			s.discard(name.String())
		}
	}
	if cut > 0 {
		s.o.Log.Warn("cut off an incomplete end of the history", "bytes", cut)
	}
	_ = s.reserve(0) // the bound may be lower than it was; what cannot be removed is counted and logged
	s.count(func(n *Stats) { n.Cut += uint64(cut) })
	return nil
}

// discard removes what an interrupted merge left, if it is that.
func (s *Store) discard(name string) {
	err := s.checkOurs(name)
	if err == nil {
		err = s.dir.Remove(name)
	}
	if err != nil {
		s.fail(FailedRemove, true, "cannot remove what an interrupted merge of the history left behind",
			fmt.Errorf("%s: %w", name, err))
	}
}

func (s *Store) checkOurs(name string) error {
	f, err := s.o.open(s.dir, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err = begins(f, info.Size()); errors.Is(err, errVersion) {
		return nil
	}
	return err
}

// warnDamaged logs that a part of a segment cannot be read.
func (s *Store) warnDamaged(g *segment) {
	s.o.Log.Warn("a segment of the history is damaged; its intact parts can be read, and it is kept until it expires",
		"segment", g.String(), "bytes", g.damaged, "from", g.start, "to", g.end)
}

// recoverSegment makes a segment known. It returns how many bytes it cut off. After an error the
// file is as it was.
func (s *Store) recoverSegment(g *segment, last bool) (cut int64, err error) {
	f, info, err := s.o.open.segment(s.dir, g.segmentName, os.O_RDWR)
	if err != nil {
		if info, err := s.dir.Lstat(g.String()); err == nil {
			g.size = info.Size()
		}
		g.unreadable = g.size
		s.segments = append(s.segments, g)
		return 0, err
	}
	g.size = info.Size()
	defer func() {
		if s.open == nil || s.open.segment != g {
			f.Close()
		}
	}()
	var index scanner
	err = index.scan(f, g.size)
	if errors.Is(err, errForeign) {
		return 0, fmt.Errorf("%v: %w", g.segmentName, err)
	}
	for i := range index.entries {
		if e := &index.entries[i]; !e.damaged {
			g.add(e.span)
		}
	}
	if err == nil {
		g.damaged = index.damaged(last)
	}
	var d *decoder // has the names of the segment if it may go on
	if err == nil && last && g.damaged == 0 {
		d, err = namesOf(f, &index, g)
	}
	switch {
	case errors.Is(err, errVersion):
		g.other = g.size
	case err != nil:
		g.unreadable = g.size
	}
	if err == nil && len(index.entries) == 0 && g.damaged == 0 {
		if err := s.dir.Remove(g.String()); err != nil {
			s.segments = append(s.segments, g)
			return 0, fmt.Errorf("remove an empty segment of the history: %w", err)
		}
		return g.size - index.end, nil
	}
	s.segments = append(s.segments, g)
	if err != nil {
		return 0, fmt.Errorf("%v: %w", g.segmentName, err)
	}
	if last && index.torn {
		if err := f.Truncate(index.end); err != nil {
			return 0, fmt.Errorf("cut a segment of the history: %w", err)
		}
		cut, g.size = g.size-index.end, index.end
	}
	if d != nil && g.damaged == 0 && g.level == 0 && s.o.Now().Sub(g.end).Abs() < segmentTime {
		s.open = &openSegmentFile{g, f, d.encoder(&index)}
	}
	return cut, nil
}

// namesOf reads the bodies of a segment, as they may not be on the disk if the machine failed. It
// adds those that are damaged to g, and returns the decoder that has their names; nil if the
// segment is of another format, so that nothing can be appended to it.
func namesOf(f segmentFile, index *scanner, g *segment) (*decoder, error) {
	d, right := newDecoder(f, digest.NewNames(nil)), true
	for i := range index.entries {
		e := &index.entries[i]
		_, err := d.window(e, nil)
		if errors.Is(err, errRead) {
			return nil, err
		}
		if err != nil {
			g.damaged += int64(e.bodySize)
		}
		right = right && e.format == current
	}
	if !right {
		return nil, nil
	}
	return d, nil
}

// encoder returns one that goes on where the decoder is.
func (d *decoder) encoder(index *scanner) *encoder {
	e := newEncoder(d.tables.writer())
	e.indexed = index.indexed
	return e
}
