package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A Reader reads a history, also one that is being written. Its methods may be called from any
// goroutine.
type Reader struct {
	path   string
	opener opener // opens segments

	mu      sync.Mutex
	indexes map[segmentName]fileIndex // indexes of segments, which only grow
}

type fileIndex struct {
	*scanner
	info os.FileInfo
}

// Read returns a reader of the history in a directory. It opens nothing yet.
func Read(path string) *Reader {
	return &Reader{path: path, opener: openFile, indexes: make(map[segmentName]fileIndex)}
}

// ErrNone is the error for a time of which the history has nothing.
var ErrNone = errors.New("the history has no data for that time")

// A Slice is a window of a history, without its stacks.
type Slice struct {
	Start, End time.Time
	Covered    time.Duration // covered part of the time between them; less while the agent did not run
	Services   []Sum         // ordered by name
}

// Timeline returns the windows that touch the time from from to to, in order, with the sums of one
// service, or of all if service is "". It reads no stacks, and of most windows nothing more once
// they were read.
func (r *Reader) Timeline(ctx context.Context, from, to time.Time, service string) ([]Slice, error) {
	files, err := r.open()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	var list []Slice
	for _, f := range files {
		for i := range f.entries {
			e := &f.entries[i]
			if e.damaged || !e.start.Before(to) || !e.end.After(from) {
				continue
			}
			s := Slice{Start: e.start, End: e.end, Covered: e.covered, Services: e.services()}
			list = append(list, s.ForService(service))
		}
	}
	slices.SortStableFunc(list, func(a, b Slice) int { return a.Start.Compare(b.Start) })
	return list, ctx.Err()
}

// Gaps returns the parts of the history from from to to that cannot be read, in order. Stacks are
// not read: what is damaged there is only in the comments of Query.
func (r *Reader) Gaps(_ context.Context, from, to time.Time) ([]Gap, error) {
	files, err := r.open()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	return slices.DeleteFunc(gaps(files), func(g Gap) bool { return !g.touches(from, to) }), nil
}

// Query returns one profile of the windows in a selection. The first comments say which time it is
// of, how fine the windows are, and what is missing. If there is none, the error is ErrNone and
// says which time the history has, and what cannot be read.
func (r *Reader) Query(ctx context.Context, want Selection) (all *profile.Profile, err error) {
	err = r.Split(ctx, want, 1, func(p *profile.Profile) error {
		all = p
		return nil
	})
	return all, err
}

// Split passes the windows of a selection to each, in order, as profiles like that of Query. If
// there are more than most, neighbours are merged, so that there are no more than that. It ends
// with the first error of each. If there is no window, the error is ErrNone.
func (r *Reader) Split(ctx context.Context, want Selection, most int, each func(*profile.Profile) error) error {
	files, err := r.open()
	if err != nil {
		return err
	}
	defer closeAll(files)
	unread := slices.DeleteFunc(gaps(files), func(g Gap) bool { return !g.touches(want.From, want.To) })
	half := func(e *entry) bool { return want.overlap(e) >= e.end.Sub(e.start)/2 }
	touches := func(e *entry) bool { return true }
	for _, taken := range []func(*entry) bool{half, touches} {
		q := query{want: &want, each: each, gaps: unread, sum: digest.NewMerger(digest.NewNames(nil), nil)}
		q.matches = func(e *entry) bool { return !e.damaged && want.overlap(e) > 0 && taken(e) }
		windows := 0
		for _, f := range files {
			for i := range f.entries {
				if q.matches(&f.entries[i]) {
					windows++
				}
			}
		}
		q.together = (windows + most - 1) / max(most, 1)
		for _, f := range files {
			if err := q.add(ctx, f); err != nil {
				return err
			}
		}
		if err := q.pass(); err != nil {
			return err
		}
		if q.passed {
			return nil
		}
		unread = q.gaps
	}
	has := extent(files)
	switch {
	case len(unread) == 0:
		return fmt.Errorf("%w (%s)", ErrNone, cmp.Or(has, "it is empty"))
	case has == "":
		return fmt.Errorf("%w: %s", ErrNone, missing(unread))
	}
	return fmt.Errorf("%w (%s): %s", ErrNone, has, missing(unread))
}

// overlap is how much of a window is in the selection; 0 or less if nothing is.
func (s *Selection) overlap(e *entry) time.Duration {
	from, to := s.From, s.To
	if e.start.After(from) {
		from = e.start
	}
	if e.end.Before(to) {
		to = e.end
	}
	return to.Sub(from)
}

// extent says which time the history has; "" if it has no window.
func extent(files []*openIndex) string {
	var first, last time.Time
	for _, f := range files {
		for i := range f.entries {
			e := &f.entries[i]
			if e.damaged {
				continue
			}
			if first.IsZero() || e.start.Before(first) {
				first = e.start
			}
			if e.end.After(last) {
				last = e.end
			}
		}
	}
	if first.IsZero() {
		return ""
	}
	const layout = "2006-01-02 15:04:05 MST"
	return fmt.Sprintf("it has %s to %s", first.Format(layout), last.Format(layout))
}

// A query makes profiles of the windows in a selection.
type query struct {
	want     *Selection
	matches  func(*entry) bool // windows of the selection
	together int               // windows that become one profile
	each     func(*profile.Profile) error
	passed   bool  // each was called
	gaps     []Gap // gaps that were found so far

	// The profile in the making.
	sum             *digest.Merger
	windows         int
	longest, finest time.Duration // windows
}

// add adds the windows of a segment.
func (q *query) add(ctx context.Context, f *openIndex) error {
	last := len(f.entries) - 1
	for last >= 0 && !q.matches(&f.entries[last]) {
		last--
	}
	d := newDecoder(f.file, q.sum.Names)
	for i := range f.entries[:last+1] {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := &f.entries[i]
		var of *Selection // only names
		if q.matches(e) {
			of = q.want
		}
		w, err := d.window(e, of)
		if of == nil {
			continue
		}
		if err != nil {
			why := whyDamaged
			if errors.Is(err, errRead) {
				why = whyUnreadable
			}
			q.gaps = append(q.gaps, Gap{e.start, e.end, why})
			continue
		}
		q.sum.Add(w, e.end)
		length := e.end.Sub(e.start)
		if q.windows == 0 {
			q.finest = length
		}
		q.windows++
		q.longest, q.finest = max(q.longest, length), min(q.finest, length)
		if q.windows == q.together {
			if err := q.pass(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass passes the profile of the windows that were added, if there are any, and begins the next
// one.
func (q *query) pass() error {
	if q.windows == 0 {
		return nil
	}
	p := q.profile()
	q.sum, q.windows, q.longest, q.passed = digest.NewMerger(q.sum.Names, nil), 0, 0, true
	return q.each(p)
}

// profile is that of the windows that were added.
func (q *query) profile() *profile.Profile {
	p := q.sum.Profile(4 * digest.MaxContexts)
	const layout = "2006-01-02 15:04:05"
	length := q.finest.Round(time.Second).String()
	if longest := q.longest.Round(time.Second); longest > q.finest.Round(time.Second) {
		length += " to " + longest.String()
	}
	comments := []string{fmt.Sprintf("from the history: %s to %s, %s of %s", p.Start.Format(layout+" MST"),
		q.sum.End.Format(layout),
		stored.Plural(q.windows, "window"), length)}
	if absent := q.sum.End.Sub(p.Start) - p.Duration; absent > time.Second {
		comments = append(comments, fmt.Sprintf("%v of that time were not recorded, or cannot be read",
			absent.Round(time.Second)))
	}
	if len(q.gaps) > 0 {
		comments = append(comments, missing(q.gaps))
	}
	if q.want.Service != "" || len(q.want.PIDs) > 0 {
		q.want.account(p)
		comments = append(comments, "Filtered to some processes. Lost samples are prorated; event counters "+
			"cover all processes.")
	}
	p.Comments = append(comments, p.Comments...)
	return p
}

// An openIndex is an open segment and its index.
type openIndex struct {
	file    segmentFile // nil if it cannot be opened
	entries []entry
	gap     string // why more may follow the entries that cannot be read; "" if nothing does
}

func closeAll(files []*openIndex) {
	for _, f := range files {
		if f.file != nil {
			f.file.Close()
		}
	}
}

// open opens all segments in order. If the writer merges or removes one of them at the same time,
// it starts again.
func (r *Reader) open() ([]*openIndex, error) {
	for tries := 0; ; tries++ {
		files, err := r.openOnce()
		if err == nil || !errors.Is(err, fs.ErrNotExist) || tries == 5 {
			return files, err
		}
		if _, statErr := os.Stat(r.path); statErr != nil {
			return nil, err
		}
	}
}

func (r *Reader) openOnce() (files []*openIndex, err error) {
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	defer dir.Close()
	list, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[segmentName]fileIndex, len(list.segments))
	for i, name := range list.segments {
		f, info, err := r.opener.segment(dir, name, os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return files, err
		}
		if err != nil {
			files = append(files, &openIndex{gap: whyUnreadable})
			continue
		}
		index := r.indexes[name]
		// Another file has the name now.
		if index.scanner == nil || index.scanner.end > info.Size() || !os.SameFile(index.info, info) {
			index.scanner = new(scanner)
		}
		index.info = info
		err = index.scan(f, info.Size())
		known[name] = index
		last := i == len(list.segments)-1 // it may be written at this moment
		files = append(files, &openIndex{f, slices.Clip(index.entries), index.gap(err, last)})
	}
	r.indexes = known
	return files, nil
}

// gap is why more may follow the entries of a segment that cannot be read, after a scan; "" if
// nothing does.
func (s *scanner) gap(err error, writing bool) string {
	switch {
	case err != nil && !errors.Is(err, errRead):
		return stored.Printable(err.Error())
	case err != nil:
		return whyUnreadable
	case s.unread(writing) > 0:
		return whyDamaged
	}
	return ""
}
