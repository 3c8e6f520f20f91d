package httpd

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/versions"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Bounds on what is kept of code versions, some 300 bytes each. They are kept for longer than
// windows, as what matters is their history.
const (
	maxVersionProcesses = 64  // those that were not seen for longest are forgotten
	maxVersionMethods   = 500 // methods of a process; those with the fewest samples are forgotten
	maxMethodVersions   = 24  // the latest
	maxListedMethods    = 100 // on the page
)

// codeVersions is the history of the code versions of processes. The zero value is empty.
type codeVersions struct {
	mu        sync.Mutex
	processes []*versionProcess
}

// A versionProcess is one process with its compiled methods.
type versionProcess struct {
	PID     int
	Comm    string
	Began   time.Time // start of the first window: times of versions are relative to it
	last    time.Time
	methods map[string]*versionMethod // by system name
}

type versionMethod struct {
	*versions.Method
	byID map[uint32]*versions.Code
}

// observe takes what a window has of code versions.
func (c *codeVersions) observe(w *profile.Profile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, proc := range w.Processes {
		if len(proc.Versions) > 0 {
			c.process(w, proc).observe(w, proc)
		}
	}
}

// process finds or adds a process. A pid that was reused is another one.
func (c *codeVersions) process(w *profile.Profile, proc *profile.Process) *versionProcess {
	for _, p := range c.processes {
		if p.PID == proc.PID && p.Comm == proc.Comm {
			return p
		}
	}
	if len(c.processes) >= maxVersionProcesses {
		oldest := 0
		for i, p := range c.processes {
			if p.last.Before(c.processes[oldest].last) {
				oldest = i
			}
		}
		c.processes = slices.Delete(c.processes, oldest, oldest+1)
	}
	p := &versionProcess{PID: proc.PID, Comm: proc.Comm, Began: w.Start, methods: map[string]*versionMethod{}}
	c.processes = append(c.processes, p)
	return p
}

// observe adds what a window has of the process.
func (p *versionProcess) observe(w *profile.Profile, proc *profile.Process) {
	p.last = w.Start
	self := selfByVersion(proc)
	for i := range proc.Versions {
		v := &proc.Versions[i]
		m := p.methods[v.SystemName]
		if m == nil {
			m = &versionMethod{&versions.Method{
				Method: stacks.Method{Name: v.Method, SystemName: v.SystemName}, PID: int64(p.PID), Comm: p.Comm,
			}, map[uint32]*versions.Code{}}
			p.methods[v.SystemName] = m
		}
		now := *v
		now.Inlined = nil
		kept := stored.NewVersion(p.PID, &now, w.Start.Sub(p.Began), func(string) int { return 0 })
		known := m.byID[v.ID]
		if known == nil {
			known = &versions.Code{Version: kept, Known: true}
			m.byID[v.ID], m.Versions = known, append(m.Versions, known)
		} else {
			kept.Since, kept.Seen = known.Since, known.Seen
			if len(kept.Traps) == 0 {
				kept.Traps = known.Traps
			}
			known.Version = kept
		}
		known.Self += self[v.ID]
		m.Self += self[v.ID]
	}
	for _, m := range p.methods {
		m.Arrange()
		if more := len(m.Versions) - maxMethodVersions; more > 0 {
			for _, v := range m.Versions[:more] {
				delete(m.byID, v.ID)
			}
			m.Versions = slices.Clone(m.Versions[more:])
		}
	}
	list := p.sorted()
	for _, m := range list[min(len(list), maxVersionMethods):] {
		delete(p.methods, m.SystemName)
	}
}

// sorted are the methods, the most samples first.
func (p *versionProcess) sorted() (list []*versions.Method) {
	for _, m := range p.methods {
		list = append(list, m.Method)
	}
	slices.SortFunc(list, func(a, b *versions.Method) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), strings.Compare(a.SystemName, b.SystemName))
	})
	return list
}

var noHandle unique.Handle[symbol.Mapping]

// selfByVersion counts the samples of a process in the code of each version, by compile id.
func selfByVersion(proc *profile.Process) map[uint32]uint64 {
	self := map[uint32]uint64{}
	for _, t := range proc.Threads {
		if t.Tree == nil {
			continue
		}
		for id, n := range t.Tree.Nodes() {
			if id == cct.Root || n.Self == 0 {
				continue
			}
			f := n.Key.Value()
			if f.Mapping == noHandle {
				continue
			}
			if version := f.Mapping.Value().Version; version != 0 {
				self[version] += n.Self
			}
		}
	}
	return self
}

// A versionsPage is what versions.html shows: methods of one process.
type versionsPage struct {
	Processes []*versionProcess // all, to choose from
	Process   *versionProcess   // nil if there is none
	Methods   []versionLine
	More      int
	Samples   uint64
}

// A versionLine is one method, as it was when the page was made.
type versionLine struct {
	Name, SystemName string
	Self             uint64
	InUse            string
	OnlyC1           bool
	GivenUp          int // optimised versions
	Recompiled       int
	Versions         []versionCell
}

type versionCell struct {
	Name, Began, Given, End, Traps string
	Self                           uint64
	Size                           uint32
}

// page makes the page of a process, or of the one with the most samples.
func (c *codeVersions) page(pid int) (page versionsPage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var most uint64
	for _, p := range c.processes {
		page.Processes = append(page.Processes, &versionProcess{PID: p.PID, Comm: p.Comm})
		samples := uint64(0)
		for _, m := range p.methods {
			samples += m.Self
		}
		if p.PID == pid || pid == 0 && (samples > most || page.Process == nil) {
			page.Process, page.Samples, most = p, samples, samples
		}
	}
	if page.Process == nil {
		return page
	}
	list := page.Process.sorted()
	page.More = max(len(list)-maxListedMethods, 0)
	for _, m := range list[:len(list)-page.More] {
		page.Methods = append(page.Methods, newVersionLine(m))
	}
	page.Process = &versionProcess{PID: page.Process.PID, Comm: page.Process.Comm, Began: page.Process.Began}
	return page
}

func newVersionLine(m *versions.Method) versionLine {
	line := versionLine{Name: m.Name, SystemName: m.SystemName, Self: m.Self, InUse: "-", OnlyC1: m.OnlyC1(),
		Recompiled: m.Recompiled()}
	seen, counted := m.Deoptimized()
	line.GivenUp = max(seen, counted)
	for _, v := range m.Final() {
		line.InUse = v.Name()
	}
	for _, v := range m.Versions {
		cell := versionCell{Name: v.Name(), Began: v.Began(), Given: v.Given(), End: v.End(), Self: v.Self,
			Size: v.Size}
		var traps []string
		for _, t := range v.Traps {
			traps = append(traps, t.Reason+" in "+t.Method+" ("+strconv.Itoa(t.Count)+")")
		}
		cell.Traps = strings.Join(traps[:min(len(traps), 8)], ", ")
		line.Versions = append(line.Versions, cell)
	}
	return line
}

// versionsOf answers requests for the page of code versions.
func (s *Server) versionsOf(w http.ResponseWriter, r *http.Request) {
	pid, err := 0, error(nil)
	if text := r.URL.Query().Get("pid"); text != "" {
		if pid, err = strconv.Atoi(text); err != nil || pid <= 0 {
			http.Error(w, "pid= needs the number of a process", http.StatusBadRequest)
			return
		}
	}
	page := s.versions.page(pid)
	if page.Process == nil {
		render(w, "message", message{Title: "No code versions yet", Refresh: 5, Home: "./",
			Text: "No compiled Java method was sampled yet. The first appear about ten seconds after the agent has " +
				"started. This page reloads itself."})
		return
	}
	render(w, "versions", page)
}
