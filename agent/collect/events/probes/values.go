package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// maxValueText bounds a text that labels events, in bytes.
const maxValueText = 100

// A valueWatch is one spec of values.
type valueWatch struct {
	spec    valueprobe.Spec
	lacking map[symbolize.FileKey]error // guarded by Probes.mu: why files have no probe for it
}

// maxLacking bounds the map lacking; when full it is cleared, and files are examined again.
const maxLacking = 4096

// A watchedKey is a file to which a spec is attached, for all processes that map it.
type watchedKey struct {
	watch *valueWatch
	file  symbolize.FileKey
}

// valueSites finds the spec of a probe by its cookie.
type valueSites struct {
	mu    sync.Mutex
	sites map[uint32]valueSite
}

type valueSite struct {
	attach.ValueSite
	watch *valueWatch
}

func (v *valueSites) add(s attach.ValueSite, watch *valueWatch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sites == nil {
		v.sites = map[uint32]valueSite{}
	}
	v.sites[s.Cookie] = valueSite{s, watch}
}

func (v *valueSites) forget(cookies []uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, cookie := range cookies {
		delete(v.sites, cookie)
	}
}

func (v *valueSites) get(cookie uint32) (valueSite, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.sites[cookie]
	return s, ok
}

// AddValueSite makes observations with the site's cookie be read as values of that spec. Attached
// plans do so by themselves.
func (e *Probes) AddValueSite(s attach.ValueSite, spec valueprobe.Spec) {
	e.values.add(s, &valueWatch{spec: spec})
}

// maxValueFiles bounds the files of one process that are searched for a probe, each time that it is
// examined.
const maxValueFiles = 512

// librariesLoad is when a process is examined again for libraries that it loads later: half a
// minute in all.
var librariesLoad = retry.Backoff{First: 50 * time.Millisecond, Limit: 9}

// Finds reports whether a process that maps these files may have a probe with requested values.
func (e *Probes) Finds(maps proc.Maps) bool {
	for _, w := range e.watches {
		for i := range maps {
			if w.spec.MatchesFile(maps[i].Path) {
				return true
			}
		}
	}
	return false
}

// lookForValues attaches the requested specs to the files that p maps. Libraries that p loads later
// are found when it is examined again.
func (e *Probes) lookForValues(p *guest.Process) {
	if len(e.watches) == 0 {
		return
	}
	again := e.loading.Get(p)
	if again.First == 0 {
		*again = librariesLoad
	}
	if pause, ok := again.Pause(); ok {
		e.config.Resolver.SubmitLater(p, pause)
	}
	maps := e.config.Resolver.Maps(p)
	files := 0
	for i := range maps {
		m := &maps[i]
		for _, w := range e.watches {
			if !m.Exec || m.Path == "" || !w.spec.MatchesFile(m.Path) {
				continue
			}
			if files++; files > maxValueFiles {
				p.Note(fmt.Sprintf("process %d: values are read in the first %d of its mapped files only", p.PID,
					maxValueFiles))
				return
			}
			e.attachWatch(p, m, w)
		}
	}
}

// attachWatch attaches a spec to one file of p, unless another process's mapping has done that. If
// the file was requested by name, its lack of the probe is logged; for specs on all files it is
// normal.
func (e *Probes) attachWatch(p *guest.Process, m *proc.Mapping, w *valueWatch) {
	lib, err := e.config.Resolver.Open(p, m)
	if err != nil {
		return // counted
	}
	defer lib.File.Close()
	key := watchedKey{w, lib.Key}
	if err := e.lacks(key); err != nil {
		w.explain(p, m.Path, err)
		return
	}
	if known, why := e.watched.Known(p, key); known {
		if why != nil {
			w.explain(p, m.Path, why)
		}
		return
	}
	found, err := guest.Call(e.config.Resolver, p, func() (valuePlan, error) {
		return e.findValues(lib, w)
	})
	e.config.Resolver.CountRead(err)
	if err != nil {
		return
	}
	if found.err == nil {
		_, found.err = e.watched.Use(p, p.PID, key, lib.File, func(v *valuePlan) (bool, error) {
			*v = found
			return true, nil
		})
	} else {
		e.lack(key, found.err)
	}
	if err := found.err; err != nil && !errors.Is(err, library.ErrAttaching) && w.explain(p, m.Path, err) {
		e.config.Log.Warn("values are not recorded", "probe", w.spec.Place(), "file", m.Path, "err", err)
	}
}

// explain adds a note to profiles of p why a file's values are not recorded, unless it is one of
// many that just lack the probe or hold data. It reports whether the note is new.
func (w *valueWatch) explain(p *guest.Process, path string, err error) bool {
	if w.spec.Library == "" && (errors.Is(err, probesite.ErrNotFound) || errors.Is(err, elffile.ErrNotELF)) {
		return false
	}
	return p.Note(fmt.Sprintf("values at %s in %s are not recorded: %v", w.spec.Place(), symbol.CleanName(path), err))
}

// A valuePlan is the sites of a spec in a file, or why there are none; and its attached probes.
type valuePlan struct {
	watch    *valueWatch
	sites    []probesite.Site
	err      error
	attached *attachedPlan
}

// newWatched returns the keeper of attached specs of values.
func (e *Probes) newWatched(pool *proc.Pool) *library.Keeper[watchedKey, *guest.Process, valuePlan] {
	return library.New[watchedKey, *guest.Process](pool, library.Kind[valuePlan]{
		Attach: func(v valuePlan, f *os.File) (_ valuePlan, err error) {
			v.attached, err = e.attachValues(v, f)
			return v, err
		},
		Attached: func(v valuePlan) {
			e.adopt([]*attachedPlan{v.attached})
			e.config.Log.Debug("values are recorded", "probe", v.watch.spec.Place(), "file", v.attached.file.Name())
		},
		Idle:   func(v valuePlan, idle bool) { e.setIdle([]*attachedPlan{v.attached}, idle) },
		Detach: func(ctx context.Context, v valuePlan) { e.remove(ctx, []*attachedPlan{v.attached}) },
		Final:  func(err error) bool { return !mayPass(err) },
	})
}

// mayPass reports whether a failed attempt to attach may succeed later.
func mayPass(err error) bool {
	var p *proc.PanicError
	return proc.HeldUp(err) || errors.As(err, &p) || errors.Is(err, context.Canceled) ||
		errors.Is(err, errTooManyProbes) ||
		errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// findValues finds the sites of a spec in a file. It reads the file.
func (e *Probes) findValues(lib guest.MappedFile, w *valueWatch) (found valuePlan, _ error) {
	found.watch = w
	file, err := elffile.Open(lib.File, lib.Key.Size)
	if err != nil {
		found.err = fmt.Errorf("read file: %w", err)
		return found, nil
	}
	found.sites, found.err = attach.ValueSites(probesite.New(file, lib.File), w.spec)
	return found, nil
}

// lacks returns why the file is known to lack such a probe; nil if that is not known.
func (e *Probes) lacks(key watchedKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return key.watch.lacking[key.file]
}

func (e *Probes) lack(key watchedKey, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(key.watch.lacking) >= maxLacking {
		clear(key.watch.lacking)
	}
	key.watch.lacking[key.file] = why
}

// attachValues attaches what was found in the file f. Hits are recorded after adopt.
func (e *Probes) attachValues(found valuePlan, f *os.File) (*attachedPlan, error) {
	w := found.watch
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("keep file open: %w", err)
	}
	program := plannedProbe{name: w.spec.Place(), program: e.Programs.ValueProbe}
	p := &attachedPlan{
		eventPlan: eventPlan{kind: profile.Values, of: "values at " + w.spec.Place(), probes: []plannedProbe{program}},
		file:      file, every: max(w.spec.Every, 1), fixed: w.spec.Every > 0,
	}
	err = e.prepare(p, func(next func() (uint32, error)) error {
		values := attach.Values{Objects: e.Programs, Register: func() (uint32, error) {
			cookie, err := next()
			if err == nil {
				p.cookies = append(p.cookies, cookie)
			}
			return cookie, err
		}}
		sites, places, err := values.Prepare(w.spec, found.sites)
		p.sites = [][]attach.Site{places}
		for _, s := range sites {
			e.values.add(s, w)
		}
		return err
	})
	if err == nil {
		err = p.attach(e.uprobes)
	}
	if err != nil {
		err = errors.Join(err, p.close())
		e.values.forget(p.cookies)
		e.free(p.cookies) // no execution was recorded
		return nil, err
	}
	return p, nil
}

// ValueEvents calls add with the values of one execution: one event for each value, or one without
// a value if there is none to read. Otherwise the events equal base. It returns false if the
// observation is of an unknown probe.
func (e *Probes) ValueEvents(o *bpf.Observation, base fold.Event, add func(*fold.Event)) bool {
	site, ok := e.values.get(o.Seen.Probe)
	if !ok {
		return false
	}
	n := float64(o.Seen.Every)
	base.Kind = profile.Values
	base.Labels = profile.EventLabels{Probe: site.watch.spec.Place()}
	base.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n}}
	readings := site.Readings(o)
	if len(readings) == 0 {
		add(&base)
	}
	for i, r := range readings {
		v := base
		v.Nth = i
		v.Labels.Probe += "=" + site.watch.spec.Values[i].String()
		switch {
		case r.Failed:
			v.Labels.Value = "(unreadable)"
		case r.IsText:
			v.Labels.Value = valueText(r.Text, r.Cut)
		default:
			b := valueprobe.BucketOf(r.Number, r.Signed)
			v.Labels.Value = b.String()
			v.Sums.Values[1] = n * float64(r.Number)
			if r.Signed {
				v.Sums.Values[1] = n * float64(int64(r.Number))
			}
		}
		add(&v)
	}
	return true
}

// valueText returns a text as a label of events. An ellipsis marks a truncated text, because the
// kernel side cut it or because it is too long for a label.
func valueText(s string, cut bool) string {
	s = symbol.CleanName(s)
	if len(s) > maxValueText {
		end := maxValueText
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s, cut = s[:end], true
	}
	if cut {
		s += "…"
	}
	return s
}
