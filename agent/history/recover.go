package history

import (
	"errors"
	"fmt"
	"os"
)

// recover reads what is there, and cuts off what is incomplete. The last segment goes on. What cannot be read is left alone and reported.
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
		lost, err := s.recoverSegment(name, i == len(list.segments)-1)
		if err != nil {
			s.fail(FailedOpen, true, "a segment of the history is left alone", err)
		}
		cut += lost
		whole[name.number] = err == nil && lost == 0
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
		s.fail(FailedRemove, true, "what an interrupted merge seems to have left of the history stays", fmt.Errorf("%s: %w", name, err))
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
	_, err = begins(f, info.Size())
	return err
}

// recoverSegment makes a segment known. It returns how many bytes it cut off. After an error the file is as it was.
func (s *Store) recoverSegment(name segmentName, last bool) (cut int64, err error) {
	g := &segment{segmentName: name}
	f, info, err := s.o.open.segment(s.dir, name, os.O_RDWR)
	if err != nil {
		if info, err := s.dir.Lstat(name.String()); err == nil {
			g.size = info.Size()
		}
		g.unreadable = true
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
	names := newNames()
	d := newDecoder(f, names)
	err = index.scan(f, g.size)
	if err == nil && last {
		d, err = checkBodies(&index, d)
	}
	if errors.Is(err, errForeign) {
		return 0, fmt.Errorf("%v: %w", name, err)
	}
	for i := range index.entries {
		g.add(index.entries[i].span)
	}
	if err != nil {
		g.unreadable = true
		s.segments = append(s.segments, g)
		return 0, fmt.Errorf("%v: %w", name, err)
	}
	cut = g.size - index.end
	if len(index.entries) == 0 {
		cut = g.size - index.end
		if err := s.dir.Remove(name.String()); err != nil {
			s.segments = append(s.segments, g)
			return 0, fmt.Errorf("remove an empty segment of the history: %w", err)
		}
		return cut, nil
	}
	s.segments = append(s.segments, g)
	if cut > 0 {
		if err := f.Truncate(index.end); err != nil {
			return 0, fmt.Errorf("cut a segment of the history: %w", err)
		}
		g.size = index.end
	}
	if last && name.level == 0 && s.o.Now().Sub(g.end).Abs() < segmentTime {
		s.open = &openSegmentFile{g, f, d.encoder(&index)}
	}
	return cut, nil
}

// checkBodies reads the bodies of a segment that may not be on the disk, as the machine failed. It truncates the index before the first one that
// is damaged, and returns a decoder that has the names of those before it.
func checkBodies(index *scanner, d *decoder) (*decoder, error) {
	for i := range index.entries {
		_, err := d.window(&index.entries[i], nil)
		if errors.Is(err, errRead) {
			return d, err
		}
		if err != nil {
			index.truncate(i)
			return checkBodies(index, newDecoder(d.f, newNames())) // without what was read of the damaged one
		}
	}
	return d, nil
}

// encoder returns one that goes on where the decoder is.
func (d *decoder) encoder(index *scanner) *encoder {
	e := newEncoder(d.tables.writer())
	for _, name := range index.services.names {
		e.services.id(name)
	}
	e.indexed = index.indexed
	return e
}
