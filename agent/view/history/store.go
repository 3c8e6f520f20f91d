package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Options tune a Store. Zero values stand for the defaults.
type Options struct {
	// Ages are recorded time: a segment is as old as the windows after it are long. A clock that is
	// wrong ages nothing, nor does time in which nothing is recorded.
	Keep    time.Duration // segments that are older are removed; default 48 h
	MaxSize int64         // bytes of all files together, never exceeded; default 300 MB, at least MinSize
	Fine    time.Duration // windows are merged to a minute when their segment is older; default 2 h
	Medium  time.Duration // and to ten minutes; default 8 h
	Log     *slog.Logger
	Now     func() time.Time // the clock, for tests
	open    opener           // for tests
}

// Defaults of Options.
const (
	DefaultKeep    = 48 * time.Hour // any time of today can be compared with the same time yesterday
	DefaultMaxSize = 300_000_000
	MinSize        = 1_000_000
	DefaultFine    = 2 * time.Hour
	DefaultMedium  = 8 * time.Hour
)

const (
	// segmentTime is how much recorded time a segment has. An hour has names that are worth to be
	// shared, and can be removed at once.
	segmentTime = time.Hour
	// segmentShare is the largest segment, as a share of the maximum size: so much is removed at
	// once when there is no room.
	segmentShare = 8
	// syncEvery is how much a failure of power may cost. What the kernel has been given survives
	// the end of the process.
	syncEvery = time.Minute
	// queued windows wait while the disk is busy.
	queued = 4
)

// Causes for which a window is not stored: keys of Stats.Lost.
const (
	LostDiskFull = "disk_full"
	LostBusy     = "busy"      // the disk was too slow
	LostTooLarge = "too_large" // the window does not fit
	LostFailed   = "failed"    // any other error of the file system
)

// Steps that fail: keys of Stats.Failed.
const (
	FailedOpen   = "open"   // a segment could not be read or made ready when the history was opened
	FailedMerge  = "merge"  // the windows of a segment could not be merged
	FailedRemove = "remove" // a file could not be removed
)

// Reasons for which windows are removed: keys of Stats.Removed.
const (
	RemovedAge  = "age"
	RemovedSize = "size"
)

// Reasons for which a part of a history cannot be read: keys of Stats.Unread.
const (
	UnreadDamaged = "damaged"       // records that are not as they were written, as far as they were looked at
	UnreadVersion = "other_version" // segments that another version of the agent wrote
	UnreadFailed  = "failed"        // segments that the file system did not let the agent open or read
)

// Stats are the state of a Store. Counters run since it was opened. Maps have every key from the
// start.
type Stats struct {
	Windows uint64            // counter: stored windows
	Bytes   uint64            // counter: written, also when windows are merged
	Lost    map[string]uint64 // counter: windows that were not stored, by cause
	Cut     uint64            // counter: bytes that were cut off as their record was incomplete
	Removed map[string]uint64 // counter: bytes of segments that were removed, by reason
	Merges  uint64            // counter: segments whose windows were merged
	Failed  map[string]uint64 // counter: failures that lost no window, by step
	Size    int64             // gauge: bytes of all files
	MaxSize int64             // gauge: their bound
	Oldest  time.Time         // gauge: the start of the oldest window; zero if there is none
	// Unread is a gauge: bytes of segments that cannot be read, by reason. They are a part of Size.
	Unread map[string]uint64
}

// A Store writes a history. One process can open a directory at a time.
type Store struct {
	o        Options
	dir      *os.Root
	lock     *os.File
	queue    chan *profile.Profile
	segments []*segment // by number
	next     uint64     // a number that no file has
	// open is the last segment while windows are appended to it; nil if there is none.
	open    *openSegmentFile
	synced  time.Time
	written digest.Arena // room for the window that is added
	spare   digest.Spare
	added   uint64 // windows that Add was called with
	// failing says that the last window was not written.
	failing bool

	mu    sync.Mutex
	stats Stats
}

// A segment is a file of the store.
type segment struct {
	segmentName
	size    int64
	windows int
	start   time.Time     // start of the earliest window
	end     time.Time     // end of the latest window
	covered time.Duration // sum over all windows

	// After a merge that failed: how many did, and the number of windows before the next one.
	tries int
	retry uint64
	// Bytes that cannot be read, by reason. A segment that has some is left as it is until its time
	// to be removed: it is not merged.
	damaged, other, unreadable int64
	// stays says that it could not be removed.
	stays bool
}

func (g *segment) add(h span) {
	if g.windows == 0 || h.start.Before(g.start) {
		g.start = h.start
	}
	if h.end.After(g.end) {
		g.end = h.end
	}
	g.windows++
	g.covered += h.covered
}

// stale reports whether a part of the segment cannot be read.
func (g *segment) stale() bool { return g.damaged+g.other+g.unreadable > 0 }

// openSegmentFile is a segment that is being written.
type openSegmentFile struct {
	*segment
	f segmentFile
	*encoder
}

// Open opens the history in a directory for writing, makes the directory if there is none, and cuts
// off what a crash left incomplete.
func Open(path string, o *Options) (*Store, error) {
	s := &Store{queue: make(chan *profile.Profile, queued)}
	if o != nil {
		s.o = *o
	}
	s.o.Keep, s.o.MaxSize = cmp.Or(s.o.Keep, DefaultKeep), cmp.Or(s.o.MaxSize, DefaultMaxSize)
	s.o.Fine, s.o.Medium = cmp.Or(s.o.Fine, DefaultFine), cmp.Or(s.o.Medium, DefaultMedium)
	if s.o.MaxSize < MinSize {
		return nil, fmt.Errorf("the size of the history is %d bytes: it needs at least %d", s.o.MaxSize, MinSize)
	}
	if s.o.Log == nil {
		s.o.Log = slog.New(slog.DiscardHandler)
	}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	s.stats.Lost = map[string]uint64{LostDiskFull: 0, LostBusy: 0, LostTooLarge: 0, LostFailed: 0}
	s.stats.Removed = map[string]uint64{RemovedAge: 0, RemovedSize: 0}
	s.stats.Failed = map[string]uint64{FailedOpen: 0, FailedMerge: 0, FailedRemove: 0}
	if s.o.open == nil {
		s.o.open = openFile
	}
	var err error
	if s.dir, s.lock, err = ownDirectory(path); err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the store. Windows that were handed to Observe and not written yet are lost.
func (s *Store) Close() error {
	err := s.finish()
	return errors.Join(err, s.lock.Close(), s.dir.Close())
}

// Stats returns the state. It may be called from any goroutine.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := s.stats
	copied.Lost, copied.Removed, copied.Failed = maps.Clone(s.stats.Lost), maps.Clone(s.stats.Removed),
		maps.Clone(s.stats.Failed)
	copied.Unread = maps.Clone(s.stats.Unread)
	return copied
}

func (s *Store) count(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
	s.stats.Size, s.stats.Oldest, s.stats.MaxSize = s.size(), time.Time{}, s.o.MaxSize
	s.stats.Unread = map[string]uint64{UnreadDamaged: 0, UnreadVersion: 0, UnreadFailed: 0}
	for _, g := range s.segments {
		s.stats.Unread[UnreadDamaged] += uint64(g.damaged)
		s.stats.Unread[UnreadVersion] += uint64(g.other)
		s.stats.Unread[UnreadFailed] += uint64(g.unreadable)
		if g.windows > 0 && (s.stats.Oldest.IsZero() || g.start.Before(s.stats.Oldest)) {
			s.stats.Oldest = g.start
		}
	}
}

// Observe takes a closed window to be written by Run. It never waits: if the disk is too slow, the
// window is lost and counted.
func (s *Store) Observe(p *profile.Profile) {
	select {
	case s.queue <- p:
	default:
		s.mu.Lock()
		s.stats.Lost[LostBusy]++
		s.mu.Unlock()
	}
}

// Run writes windows, merges and removes old ones until ctx ends. It logs failures once until it
// succeeds again.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case p := <-s.queue:
			s.report(s.Add(p))
		case <-ctx.Done():
			s.addQueued()
			return nil
		}
	}
}

// addQueued writes the windows that wait.
func (s *Store) addQueued() {
	for {
		select {
		case p := <-s.queue:
			s.report(s.add(p))
		default:
			return
		}
	}
}

func (s *Store) report(err error) {
	if err != nil && !s.failing {
		s.o.Log.Warn("the history is incomplete; vmprof_history_windows_lost_total counts on", "err", err)
	}
	s.failing = err != nil
}

// fail counts a failure that loses no window, and logs it if it is news.
func (s *Store) fail(step string, news bool, message string, err error) {
	s.count(func(n *Stats) { n.Failed[step]++ })
	if news {
		s.o.Log.Warn(message, "err", err)
	}
}

// Add writes a window, removes what is too old, and merges windows of the oldest segment that is
// due, which may take a second. Its error is that of the window. Only the goroutine that owns the
// store may call it: the one in Run if that runs.
func (s *Store) Add(p *profile.Profile) error {
	err := s.add(p)
	s.tidy()
	return err
}

func (s *Store) add(p *profile.Profile) error {
	s.added++
	if y := p.Start.Year(); y < 1900 || y > 2200 || p.Duration < 0 { // what 64 bits of nanoseconds hold, with some room
		s.count(func(n *Stats) { n.Lost[LostFailed]++ })
		return fmt.Errorf("the clock is wrong: a window began at %v", p.Start)
	}
	err := proc.Catch(func() error { return s.write(p) }) // a fault costs a window, not the agent
	if panicked := (*proc.PanicError)(nil); errors.As(err, &panicked) {
		s.finish() // its names may be half known
	}
	s.count(func(n *Stats) {
		switch {
		case err == nil:
			n.Windows++
		case errors.Is(err, errTooLarge):
			n.Lost[LostTooLarge]++
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			n.Lost[LostDiskFull]++
		default:
			n.Lost[LostFailed]++
		}
	})
	return err
}

// write appends a window to the last segment, or to a new one.
func (s *Store) write(p *profile.Profile) error {
	if o := s.open; o != nil && (o.covered >= segmentTime || o.full() || o.size > s.o.MaxSize/segmentShare ||
		o.windows >= maxEntries) {
		if err := s.finish(); err != nil {
			return err
		}
	}
	h := header{span{p.Start, p.Start.Add(p.Duration), p.Duration}, sumsOf(p)}
	// A window that finds no room removes the oldest segment. That may be the last one, whose names
	// the record relies on.
	for range 2 {
		if s.open == nil {
			if err := s.create(); err != nil {
				return err
			}
		}
		o := s.open
		record, err := o.record(&h, s.stored(p))
		if err == nil {
			err = s.reserve(int64(len(record)))
		}
		if err != nil {
			o.forget()
			return err
		}
		if s.open != o {
			continue
		}
		return s.append(&h, record)
	}
	return errTooLarge
}

// stored returns a window as the last segment has it, until the next one.
func (s *Store) stored(p *profile.Profile) *digest.Window {
	s.written.Reset()
	m := digest.NewMerger(s.open.tables.names, &s.spare)
	defer m.Release()
	m.AddProfile(p)
	return m.Finish(digest.MaxContexts, &s.written)
}

// append appends a record. What an error leaves of it is cut off.
func (s *Store) append(h *header, record []byte) error {
	o := s.open
	if _, err := o.f.WriteAt(record, o.size); err != nil {
		o.forget()
		if cutErr := o.f.Truncate(o.size); cutErr != nil {
			s.finish() // the next window begins another segment
			err = errors.Join(err, cutErr)
		}
		return fmt.Errorf("write to the history: %w", err)
	}
	o.size += int64(len(record))
	o.add(h.span)
	s.count(func(n *Stats) { n.Bytes += uint64(len(record)) })
	if now := s.o.Now(); now.Sub(s.synced).Abs() >= syncEvery {
		s.synced = now
		if err := unix.Fdatasync(int(o.f.Fd())); err != nil {
			return fmt.Errorf("sync the history: %w", err)
		}
	}
	return nil
}

// create begins a segment.
func (s *Store) create() error {
	if err := s.reserve(int64(len(magic))); err != nil {
		return err
	}
	g := &segment{size: int64(len(magic))}
	const others = 100 // files that others made with names of segments, at most, one after the other
	var f segmentFile
	for try := 0; ; try++ {
		g.number = s.next
		s.next++
		var err error
		if f, err = s.createFile(g.String()); err == nil {
			break
		}
		if try == others || !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	s.open = &openSegmentFile{g, f, newEncoder(newTables(digest.NewNames(nil)))}
	s.segments = append(s.segments, g)
	return nil
}

// createFile makes a file that begins as segments do.
func (s *Store) createFile(name string) (segmentFile, error) {
	f, err := s.o.open(s.dir, name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("create a segment of the history: %w", err)
	}
	if _, err := f.WriteAt([]byte(magic), 0); err != nil {
		f.Close()
		s.dir.Remove(name)
		return nil, fmt.Errorf("begin a segment of the history: %w", err)
	}
	return f, nil
}

// finish closes the last segment.
func (s *Store) finish() error {
	o := s.open
	if o == nil {
		return nil
	}
	s.open = nil
	if err := errors.Join(unix.Fdatasync(int(o.f.Fd())), o.f.Close()); err != nil {
		return fmt.Errorf("close a segment of the history: %w", err)
	}
	return nil
}

// size is that of all segments.
func (s *Store) size() (n int64) {
	for _, g := range s.segments {
		n += g.size
	}
	return n
}

// reserve makes room for so many bytes: it removes the oldest segments, in the order in which they
// were written.
func (s *Store) reserve(bytes int64) error {
	if bytes > s.o.MaxSize-int64(len(magic)) {
		return errTooLarge // nothing is removed for what never fits
	}
	var failed error
	for _, g := range slices.Clone(s.segments) {
		if s.size()+bytes <= s.o.MaxSize {
			return nil
		}
		failed = cmp.Or(failed, s.remove(g, RemovedSize)) // another one may make room
	}
	if s.size()+bytes > s.o.MaxSize {
		return cmp.Or(failed, errTooLarge)
	}
	return nil
}

func (s *Store) remove(g *segment, reason string) error {
	if s.open != nil && s.open.segment == g {
		s.finish() // what cannot be written any more is removed anyway
	}
	if err := s.dir.Remove(g.String()); err != nil && !errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("remove a segment of the history: %w", err)
		s.fail(FailedRemove, !g.stays, "cannot remove a segment of the history", err)
		g.stays = true
		return err
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == g })
	s.count(func(n *Stats) { n.Removed[reason] += uint64(g.size) })
	return nil
}
