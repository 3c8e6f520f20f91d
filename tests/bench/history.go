package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/events"
	"github.com/vmprof-agent/vmprof-agent/agent/history"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// Aims of the history.
const (
	historySizeAim = 200e6 // bytes for a day
	historyCoreAim = 0.002 // of a core
)

// A historyManner says how much to record and to store.
type historyManner struct {
	guests   []string
	recorded int // windows
	services int
	stored   int // windows
}

var (
	// longHistory stores 25 hours, so that a day is there in full, and the next hour at each age.
	longHistory  = historyManner{guests: []string{"Xalan", "Jython", "H2", "Luindex", "Javac"}, recorded: 12, services: 20, stored: 25 * 360}
	shortHistory = historyManner{guests: []string{"Jython"}, recorded: 1, services: 2, stored: 400}
)

// historyWindow is that of serve.
const historyWindow = 10 * time.Second

// history records windows of real programs, makes a host of many services of them, and stores a day of it, as fast as it can.
func (b bench) history(ctx context.Context) ([]harness.Table, error) {
	windows, err := b.recordWindows(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.out, "history: recorded %d windows; storing %d\n", len(windows), b.how.history.stored)
	host := newHost(windows, b.how.history.services)
	dir, err := os.MkdirTemp("", "history")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store, err := history.Open(dir, &history.Options{MaxSize: 10e9, Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	var took, slowest time.Duration
	samples, largest := uint64(0), int64(0)
	for range b.how.history.stored {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := host.window(now)
		now = now.Add(historyWindow)
		samples += p.Counts.Folded
		before := cpuTime()
		if err := store.Add(p); err != nil {
			return nil, err
		}
		d := cpuTime() - before
		took, slowest, largest = took+d, max(slowest, d), max(largest, store.Stats().Size)
	}
	var reads [2]time.Duration
	at := now.Add(-time.Duration(b.how.history.stored) * historyWindow / 3)
	for i, read := range []func(*history.Reader) error{
		func(r *history.Reader) error {
			_, err := r.Query(ctx, history.Selection{From: at, To: at.Add(5 * time.Minute), Service: "service-01", Content: sink.Time})
			return err
		},
		func(r *history.Reader) error {
			_, err := r.Timeline(ctx, now.AddDate(0, 0, -1), now, "")
			return err
		},
	} {
		began := time.Now()
		if err := read(history.Read(dir)); err != nil {
			return nil, err
		}
		reads[i] = time.Since(began)
	}
	n := float64(b.how.history.stored)
	core := took.Seconds() / (n * historyWindow.Seconds())
	written := store.Stats().Bytes
	table := report.Table{Header: []string{fmt.Sprintf("a day of %d services", b.how.history.services), "measured", "aim", ""}}
	table.Add("samples of CPU time in a window of 10 s", fmt.Sprintf("%.0f", float64(samples)/n), "", "")
	table.Add("largest size, MB", fmt.Sprintf("%.0f", float64(largest)/1e6), fmt.Sprintf("≤ %.0f", historySizeAim/1e6), report.Verdict(largest <= historySizeAim))
	table.Add("CPU time for a window, with its merges, ms", fmt.Sprintf("%.1f", 1e3*took.Seconds()/n), "", "")
	table.Add("the same, % of a core", fmt.Sprintf("%.2f", 100*core), fmt.Sprintf("≤ %.1f", 100*historyCoreAim), report.Verdict(core <= historyCoreAim))
	table.Add("longest, with the merge of an hour, s", fmt.Sprintf("%.1f", slowest.Seconds()), "", "")
	table.Add("written, MB a day", fmt.Sprintf("%.0f", float64(written)/n*8640/1e6), "", "")
	table.Add("reading five minutes of a service, ms", fmt.Sprintf("%.0f", 1e3*reads[0].Seconds()), "", "")
	table.Add("reading the timeline of the day, ms", fmt.Sprintf("%.0f", 1e3*reads[1].Seconds()), "", "")
	return []harness.Table{{Marker: "history", Table: table}}, nil
}

// recordWindows records programs of the suite, all at once, with an agent of this process.
func (b bench) recordWindows(ctx context.Context) ([]*profile.Profile, error) {
	var guests []*suite.Guest
	var pids []int
	for _, name := range b.how.history.guests {
		guest, err := suite.Start(ctx, b.jdk, name)
		if err != nil {
			return nil, err
		}
		defer guest.Close()
		guests, pids = append(guests, guest), append(pids, guest.PID())
	}
	kinds := events.Options{}
	kinds.Kinds[profile.Allocations], kinds.Kinds[profile.Locks] = true, true
	a, err := agent.New(ctx, agent.Options{PIDs: pids, Events: &kinds})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	worked := make(chan error, 1)
	go func() {
		worked <- runAll(guests, runFor(time.Duration(b.how.history.recorded)*historyWindow+historyWindow/2))
	}()
	var windows []*profile.Profile
	err = a.Follow(ctx, historyWindow, func(p *profile.Profile) {
		windows = append(windows, p)
		if len(windows) == b.how.history.recorded {
			stop()
		}
	})
	for _, ended := range []chan error{ran, worked} {
		if e := <-ended; err == nil && e != nil && ctx.Err() == nil {
			err = e
		}
	}
	if err == nil && len(windows) < b.how.history.recorded {
		err = fmt.Errorf("%d windows were recorded, not %d", len(windows), b.how.history.recorded)
	}
	return windows, err
}

// A host is a machine whose services are copies of recorded programs, each with names of its own.
type host struct {
	windows  []*profile.Profile
	services [][][]*profile.Process // by service and window
	rng      *rand.Rand
}

func newHost(windows []*profile.Profile, services int) *host {
	h := &host{windows: windows, rng: rand.New(rand.NewPCG(1, 2))}
	for n := range services {
		r := renamer{service: fmt.Sprintf("service-%02d", n), pid: 10000 + 10*n, known: make(map[symbolize.Symbol][]symbolize.Symbol)}
		var all [][]*profile.Process
		for _, w := range windows {
			proc := w.Processes[n%len(w.Processes)]
			all = append(all, []*profile.Process{r.process(proc)})
		}
		h.services = append(h.services, all)
	}
	return h
}

// window is a window of the host: each service does what its program did in one of the recorded ones.
func (h *host) window(start time.Time) *profile.Profile {
	p := *h.windows[h.rng.IntN(len(h.windows))]
	p.Start, p.Duration, p.Processes = start, historyWindow, nil
	p.Counts.Folded = 0
	for _, service := range h.services {
		for _, proc := range service[h.rng.IntN(len(service))] {
			p.Processes = append(p.Processes, proc)
			for _, t := range proc.Threads {
				if t.Tree != nil {
					p.Counts.Folded += t.Tree.Total()
				}
			}
		}
	}
	return &p
}

// A renamer gives the program's own methods other names. Those of the JDK, of libraries in C and of the kernel are what services share.
type renamer struct {
	service string
	pid     int
	known   map[symbolize.Symbol][]symbolize.Symbol
}

func (r *renamer) process(proc *profile.Process) *profile.Process {
	p := *proc
	p.PID, p.Service, p.Threads, p.Events = r.pid, r.service, nil, nil
	for _, t := range proc.Threads {
		thread := *t
		if t.Tree != nil {
			thread.Tree = cct.Map(t.Tree, r.frame)
		}
		p.Threads = append(p.Threads, &thread)
	}
	for _, e := range proc.Events {
		of := *e
		of.Tree, of.Rows = new(cct.Tree[symbolize.Symbol]), append([]profile.EventRow(nil), e.Rows...)
		for i := range of.Rows {
			if e.Tree == nil {
				continue
			}
			stack := e.Tree.Stack(of.Rows[i].Context)
			for j, s := range stack {
				stack[j] = r.frame(s)[0]
			}
			of.Rows[i].Context = of.Tree.Add(stack, of.Rows[i].Events)
		}
		p.Events = append(p.Events, &of)
	}
	return &p
}

func (r *renamer) frame(s symbolize.Symbol) []symbolize.Symbol {
	one := r.known[s]
	if one != nil {
		return one
	}
	f := s.Value()
	managed := f.Kind == symbolize.KindJIT || f.Kind == symbolize.KindInterpreted
	for _, shared := range []string{"java.", "javax.", "jdk.", "sun.", "com.sun."} {
		managed = managed && !strings.HasPrefix(f.Function, shared)
	}
	if managed {
		f.Function, f.SystemName = r.service+"."+f.Function, r.service+"."+f.SystemName
	}
	if f.Mapping != (unique.Handle[symbolize.Mapping]{}) && managed {
		m := f.Mapping.Value()
		m.Start += uint64(r.pid) << 20 // the code of another VM
		f.Mapping = unique.Make(m)
		f.Address += uint64(r.pid) << 20
	}
	one = []symbolize.Symbol{symbolize.Intern(f)}
	r.known[s] = one
	return one
}

// cpuTime is that of this process so far, its garbage collector included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
