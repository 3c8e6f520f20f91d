package sink

import (
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// maxRepeated bounds the remarks that consecutive windows add to those of the first: each window
// may have a remark that no other window has.
const maxRepeated = 1000

// accounts collect the metadata of one window or of several.
type accounts struct {
	metadata stored.Metadata // without totals, calls, basis and notes, which are below
	start    time.Time       // start of the first window
	end      time.Time       // end of the last window
	totals   eventTotals
	extents  processExtents
	calls    callTotals
	basis    processNotes
	notes    processNotes
	versions codeVersions
	inliners inliners
	lanes    threadLanes
	programs programs
}

// add adds what the content has of one window, with its number if there are several, else 0.
func (a *accounts) add(p *profile.Profile, content Content, window int64) {
	m := &a.metadata
	m.Samples.Add(p.Counts)
	account := stored.Account{Samples: p.Counts}
	kind, ofEvents := content.Events()
	if ofEvents {
		account = stored.Account{Events: eventAccount(p, kind)}
		if m.Events == nil {
			m.Events = &stored.EventAccount{Kind: kind}
		}
		m.Events.Observed += account.Events.Observed
		m.Events.Mixed = m.Events.Mixed || account.Events.Mixed
		m.Events.Counts.Add(p.EventCounts)
	}
	if a.start.IsZero() {
		a.start = p.Start
	}
	a.end = p.Start.Add(p.Duration)
	if s := (stored.Sampling{Event: p.Event, Period: p.Period}); p.Event != "" && !ofEvents &&
		!slices.Contains(m.Sampling, s) {
		m.Sampling = append(m.Sampling, s)
	}
	for _, c := range p.Comments {
		if note, ok := profile.ParsePartNote(c); ok && (!ofEvents || note.Kind != kind) {
			continue // This profile does not have the events.
		}
		a.remark(c, window)
	}
	if window > 0 {
		m.Windows = append(m.Windows, stored.Window{Number: window, Start: p.Start, Duration: p.Duration,
			Account: account})
	}
	if content&Slow != 0 {
		m.Followed = p.Followed
	}
	a.programs.add(p)
	for _, proc := range p.Processes {
		a.extents.add(proc, content)
		a.notes.add(proc, proc.Notes)
		if content&Time != 0 {
			a.versions.add(proc, p.Start.Sub(a.start))
		}
		if content&CallCounts != 0 || !ofEvents {
			a.calls.add(proc)
			a.inliners.add(proc, a.versions.place)
		}
		if !ofEvents {
			if proc.Contexts != nil {
				m.Contexts = append(m.Contexts, stored.ProcessContexts{Comm: proc.Comm, PID: int64(proc.PID),
					Window: window, Contexts: *proc.Contexts})
			}
			continue
		}
		for _, e := range proc.Events {
			if e.Kind == kind {
				a.basis.add(proc, e.Basis)
				a.totals.add(proc, e)
				a.lanes.add(proc, e, p.Start, window)
			}
		}
	}
}

// remark keeps a comment of a window, unless an earlier window has the same.
func (a *accounts) remark(text string, window int64) {
	m := &a.metadata
	if _, ok := profile.ParsePartNote(text); ok {
		m.Remarks = profile.AddNotes(m.Remarks, math.MaxInt, text)
		return
	}
	if window > 1 {
		if slices.Contains(m.Remarks, text) {
			return
		}
		if len(m.Remarks) >= maxRepeated {
			m.LeftOut++
			return
		}
	}
	m.Remarks = append(m.Remarks, text)
}

// round keeps what rounding left out.
func (a *accounts) round(r stored.Rounding) {
	m := &a.metadata
	switch {
	case slices.Contains(m.Rounding, r):
	case len(m.Rounding) < maxRepeated:
		m.Rounding = append(m.Rounding, r)
	default:
		m.LeftOut++
	}
}

// duration is the time from the beginning of the first window to the end of the last.
func (a *accounts) duration() time.Duration { return a.end.Sub(a.start) }

// complete returns the metadata. It is called once.
func (a *accounts) complete() *stored.Metadata {
	m := &a.metadata
	if m.Events != nil {
		m.Samples = profile.Counts{} // these are of the file with the samples
	}
	m.Versions, m.Methods = a.versions.list, a.versions.methods
	m.Inlining = a.inliners.list
	m.LeftOut += a.versions.leftOut + a.inliners.leftOut
	m.Lanes = a.lanes.list
	m.Extents = a.extents.list
	m.Totals, m.Basis, m.Calls, m.Notes = a.totals.list(), a.basis.list(), a.calls.list(), a.notes.list()
	return m
}

// eventAccount counts the events of one kind in a window.
func eventAccount(p *profile.Profile, kind profile.EventKind) *stored.EventAccount {
	a := &stored.EventAccount{Kind: kind, Mixed: len(Kinds(p)) > 1, Counts: p.EventCounts}
	for _, proc := range p.Processes {
		for _, e := range proc.Events {
			if e.Kind == kind {
				a.Observed += countEvents(e)
			}
		}
	}
	return a
}

// eventTotals add up the events of each process over all windows.
type eventTotals struct {
	order []*eventTotal
	byPID map[int]*eventTotal
}

type eventTotal struct {
	comm string
	pid  int
	sum  float64 // sum of the main value
	profile.Coverage
}

func (t *eventTotals) add(proc *profile.Process, e *profile.Events) {
	if e.Coverage == nil {
		return
	}
	if t.byPID == nil {
		t.byPID = make(map[int]*eventTotal)
	}
	all := t.byPID[proc.PID]
	if all == nil {
		all = &eventTotal{comm: proc.Comm, pid: proc.PID}
		t.byPID[proc.PID], t.order = all, append(t.order, all)
	}
	all.Add(e.Coverage)
	for i := range e.Rows {
		if row := &e.Rows[i]; !e.Kind.Apart(&row.EventLabels) {
			all.sum += row.Values[e.Kind.Main()]
		}
	}
}

func (t *eventTotals) list() (list []stored.Total) {
	for _, p := range t.order {
		if p.sum == 0 && !p.Partial() {
			continue // all rows stand apart
		}
		within := p.Within()
		if math.IsNaN(within) {
			within = math.Inf(1)
		}
		list = append(list, stored.Total{
			Comm: p.comm, PID: int64(p.pid), Sum: p.sum, Within: stored.Bound(within),
			Time: p.Time, Observed: p.Observed, Slices: p.Slices, Missed: p.Missed, Lost: p.Lost,
		})
	}
	return list
}

// processExtents add up how much there was to observe in each process, over all windows.
type processExtents struct {
	list []stored.Extent
	at   map[extentKey]int // index in list
}

type extentKey struct {
	pid           int
	subject, what string
}

func (x *processExtents) add(proc *profile.Process, content Content) {
	for i := range proc.Extents {
		e := &proc.Extents[i]
		if !content.includes(e.Subject) {
			continue
		}
		key := extentKey{proc.PID, e.Subject, e.What}
		at, known := x.at[key]
		if !known {
			if x.at == nil {
				x.at = make(map[extentKey]int)
			}
			at = len(x.list)
			x.at[key], x.list = at, append(x.list, stored.Extent{Comm: proc.Comm, PID: int64(proc.PID),
				Extent: profile.Extent{Subject: e.Subject, What: e.What, Unit: e.Unit}})
		}
		x.list[at].Add(e)
	}
}

// A callSource is where numbers of calls come from: calls of different sources do not add up.
type callSource struct {
	engine string
	basis  profile.Basis
	rate   profile.Rate
}

// callTotals add up the calls in a profile over all processes and windows.
type callTotals struct {
	order             []callSource
	weight, overflown map[callSource]float64
}

func (t *callTotals) add(proc *profile.Process) {
	if t.weight == nil {
		t.weight, t.overflown = make(map[callSource]float64), make(map[callSource]float64)
	}
	for _, c := range proc.Calls {
		s := callSource{c.Engine, c.Basis, c.Rate}
		if _, known := t.weight[s]; !known {
			t.order = append(t.order, s)
		}
		t.weight[s] += c.Graph.Total()
		t.overflown[s] += c.Graph.Overflow()
	}
}

func (t *callTotals) list() (list []stored.CallTotal) {
	for _, s := range t.order {
		list = append(list, stored.CallTotal{Engine: s.engine, Basis: s.basis, Rate: s.rate, Calls: t.weight[s],
			Overflow: t.overflown[s]})
	}
	return list
}

// processNotes are what readers of a profile must know about its processes, each note once with the
// processes it is about. Processes of one name often share a note: forty JVMs without debug
// information are one note.
//
// Notes that events were not observed all the time differ from window to window in their figures:
// they are one for each name and subject.
type processNotes struct {
	order []noteSubject
	pids  map[noteSubject][]int
	known map[processNote]bool
	parts []*partNotes
}

// partNotes are those of one subject, by process.
type partNotes struct {
	comm  string
	order []int // process ids
	of    map[int]*profile.PartNote
}

func (n *processNotes) addPart(proc *profile.Process, note *profile.PartNote) {
	at := slices.IndexFunc(n.parts, func(p *partNotes) bool {
		return p.comm == proc.Comm && p.of[p.order[0]].SameSubject(note)
	})
	if at < 0 {
		at = len(n.parts)
		n.parts = append(n.parts, &partNotes{comm: proc.Comm, of: map[int]*profile.PartNote{}})
	}
	p := n.parts[at]
	if sum := p.of[proc.PID]; sum != nil {
		sum.Add(note)
		return
	}
	p.of[proc.PID], p.order = note, append(p.order, proc.PID)
}

// note is that of all processes. A window in which several were not observed all the time is one.
func (p *partNotes) note() stored.Note {
	sum := *p.of[p.order[0]]
	for _, pid := range p.order[1:] {
		windows := max(sum.Windows, p.of[pid].Windows)
		sum.Add(p.of[pid])
		sum.Windows = windows
	}
	return noteOf(p.comm, sum.String(), p.order)
}

type noteSubject struct{ comm, note string }

type processNote struct {
	noteSubject
	pid int
}

func (n *processNotes) add(proc *profile.Process, notes []string) {
	if n.pids == nil {
		n.pids, n.known = make(map[noteSubject][]int), make(map[processNote]bool)
	}
	for _, note := range notes {
		if part, ok := profile.ParsePartNote(note); ok {
			n.addPart(proc, &part)
			continue
		}
		s := noteSubject{proc.Comm, note}
		if n.known[processNote{s, proc.PID}] {
			continue
		}
		n.known[processNote{s, proc.PID}] = true
		if n.pids[s] == nil {
			n.order = append(n.order, s)
		}
		n.pids[s] = append(n.pids[s], proc.PID)
	}
}

func (n *processNotes) list() (list []stored.Note) {
	alike := map[noteSubject][]noteSubject{} // by the text without its figures
	for _, s := range n.order {
		pattern := noteSubject{s.comm, figures.ReplaceAllString(s.note, "0")}
		alike[pattern] = append(alike[pattern], s)
	}
	for _, s := range n.order {
		switch same := alike[noteSubject{s.comm, figures.ReplaceAllString(s.note, "0")}]; {
		case len(same) <= stored.MaxNotePIDs:
			list = append(list, noteOf(s.comm, s.note, n.pids[s]))
		case same[0] == s:
			var pids []int
			for _, one := range same {
				pids = append(pids, n.pids[one]...)
			}
			list = append(list, noteOf(s.comm, s.note+
				"; this is of the first process, the others have their own figures", pids))
		}
	}
	for _, p := range n.parts {
		list = append(list, p.note())
	}
	return list
}

// figures are numbers in notes, with units of time.
var figures = regexp.MustCompile(`[0-9]+[0-9.]*(?:ns|µs|us|ms|s|m|h)?`)

// noteOf names the first of the processes that a note is about, and counts the others.
func noteOf(comm, text string, pids []int) stored.Note {
	note := stored.Note{Comm: comm, Text: text}
	for _, pid := range pids {
		if len(note.PIDs) == stored.MaxNotePIDs {
			note.More++
		} else {
			note.PIDs = append(note.PIDs, int64(pid))
		}
	}
	return note
}
