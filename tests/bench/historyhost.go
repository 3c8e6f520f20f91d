package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A host is a machine whose services are copies of recorded programs, each with names of its own.
type host struct {
	windows  []*profile.Profile   // without processes
	services [][]*profile.Process // by service and window
	rng      *rand.Rand
}

// newHost makes a host that is as busy as hostSamples says, however busy the machine was that
// recorded: a window has as many seconds of the recording as it takes for that. Several services
// share a program.
func newHost(recorded []*profile.Profile, how historyManner) *host {
	h := &host{rng: rand.New(rand.NewPCG(1, 2))}
	copies := how.services / len(how.guests)
	var groups [][]*profile.Profile
	for begin := 0; begin < len(recorded); {
		samples, end := uint64(0), begin
		for ; end < len(recorded) && samples+recorded[end].Counts.Folded/2 < uint64(hostSamples/copies); end++ {
			samples += recorded[end].Counts.Folded
		}
		if end = max(end, begin+1); end < len(recorded) || begin == 0 {
			groups = append(groups, recorded[begin:end])
			h.windows = append(h.windows, recorded[begin])
		}
		begin = end
	}
	var pids []int
	for _, w := range recorded {
		for _, proc := range w.Processes {
			if !slices.Contains(pids, proc.PID) {
				pids = append(pids, proc.PID)
			}
		}
	}
	for n := range how.services {
		r := renamer{service: fmt.Sprintf("service-%02d", n), pid: 10000 + 10*n,
			known: make(map[symbol.Symbol][]symbol.Symbol)}
		var all []*profile.Process
		for _, group := range groups {
			all = append(all, r.process(group, pids[n%len(pids)]))
		}
		h.services = append(h.services, all)
	}
	return h
}

// window is a window of the host: each service does what its program did in one of the recorded
// ones.
func (h *host) window(start time.Time) *profile.Profile {
	p := *h.windows[h.rng.IntN(len(h.windows))]
	p.Start, p.Duration, p.Processes = start, historyWindow, nil
	p.Counts.Folded = 0
	for _, service := range h.services {
		proc := service[h.rng.IntN(len(service))]
		p.Processes = append(p.Processes, proc)
		for _, t := range proc.Threads {
			p.Counts.Folded += t.Tree.Total()
		}
	}
	return &p
}

// A renamer gives the program's own methods other names. Those of the JDK, of libraries in C and of
// the kernel are what services share.
type renamer struct {
	service string
	pid     int
	known   map[symbol.Symbol][]symbol.Symbol
}

// process is a process with all that it did in several windows.
func (r *renamer) process(windows []*profile.Profile, pid int) *profile.Process {
	sum := new(profile.Process)
	for _, w := range windows {
		for _, proc := range w.Processes {
			if proc.PID != pid {
				continue
			}
			threads, kinds := sum.Threads, sum.Events
			*sum = *proc
			sum.Threads, sum.Events = threads, kinds
			r.addThreads(sum, proc)
			r.addEvents(sum, proc)
		}
	}
	sum.PID, sum.Service = r.pid, r.service
	return sum
}

func (r *renamer) addThreads(sum, proc *profile.Process) {
	for _, t := range proc.Threads {
		if t.Tree == nil {
			continue
		}
		tree := cct.Map(t.Tree, r.frame)
		i := slices.IndexFunc(sum.Threads, func(o *profile.Thread) bool {
			return o.TID == t.TID && o.Stopped == t.Stopped && o.Context == t.Context
		})
		if i >= 0 {
			sum.Threads[i].Tree.Merge(tree)
			continue
		}
		thread := *t
		thread.Tree = tree
		sum.Threads = append(sum.Threads, &thread)
	}
}

func (r *renamer) addEvents(sum, proc *profile.Process) {
	type key struct {
		context cct.NodeID
		tid     int
		profile.EventLabels
	}
	for _, e := range proc.Events {
		if e.Tree == nil {
			continue
		}
		i := slices.IndexFunc(sum.Events, func(o *profile.Events) bool { return o.Kind == e.Kind })
		if i < 0 {
			i = len(sum.Events)
			sum.Events = append(sum.Events, &profile.Events{Kind: e.Kind, Tree: new(cct.Tree[symbol.Symbol]),
				Basis: e.Basis})
		}
		of, index := sum.Events[i], make(map[key]int)
		for j := range of.Rows {
			index[key{of.Rows[j].Context, of.Rows[j].TID, of.Rows[j].EventLabels}] = j
		}
		if e.Coverage != nil {
			if of.Coverage == nil {
				of.Coverage = new(profile.Coverage)
			}
			of.Coverage.Add(e.Coverage)
		}
		for _, row := range e.Rows {
			stack := e.Tree.Stack(row.Context)
			for j, s := range stack {
				stack[j] = r.frame(s)[0]
			}
			row.Context = of.Tree.Add(stack, row.Events)
			at, known := index[key{row.Context, row.TID, row.EventLabels}]
			if !known {
				index[key{row.Context, row.TID, row.EventLabels}] = len(of.Rows)
				of.Rows = append(of.Rows, row)
				continue
			}
			of.Rows[at].Events += row.Events
			for v := range row.Values {
				of.Rows[at].Values[v] += row.Values[v]
			}
		}
	}
}

func (r *renamer) frame(s symbol.Symbol) []symbol.Symbol {
	one := r.known[s]
	if one != nil {
		return one
	}
	f := s.Value()
	managed := f.Kind == symbol.KindJIT || f.Kind == symbol.KindInterpreted
	for _, shared := range []string{"java.", "javax.", "jdk.", "sun.", "com.sun."} {
		managed = managed && !strings.HasPrefix(f.Function, shared)
	}
	if managed {
		f.Function, f.SystemName = r.service+"."+f.Function, r.service+"."+f.SystemName
	}
	if f.Mapping != (unique.Handle[symbol.Mapping]{}) && managed {
		m := f.Mapping.Value()
		m.Start += uint64(r.pid) << 20 // the code of another VM
		f.Mapping = unique.Make(m)
		f.Address += uint64(r.pid) << 20
	}
	one = []symbol.Symbol{symbol.Intern(f)}
	r.known[s] = one
	return one
}
