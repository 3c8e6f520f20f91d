package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// Aims of the history.
const (
	historySizeAim = 200e6 // bytes for a day
	historyCoreAim = 0.002 // part of a core
)

// A historyManner says how much to record and to store.
type historyManner struct {
	guests   []string
	recorded time.Duration
	services int
	hours    int // stored in full
}

var (
	longHistory = historyManner{guests: []string{"Xalan", "Jython", "H2", "Luindex", "Javac"},
		recorded: 2 * time.Minute, services: 20, hours: 4}
	shortHistory = historyManner{guests: []string{"Xalan"}, recorded: 4 * time.Second, services: 2, hours: 2}
)

const (
	// historyWindow is that of serve, and hourWindows are how many an hour has.
	historyWindow = 10 * time.Second
	hourWindows   = int(time.Hour / historyWindow)
	// hostSamples are those in a window of a host, at 99 Hz: its services use one and a half CPUs
	// all the time.
	hostSamples = 1440
)

// Of a day, with the default options of the history, at its largest: how many hours there are of
// each level of merging. Windows are merged when they are two and eight hours old, by whole
// segments of an hour, and the last one goes after 24 hours.
var dayHours = [3]int{3, 6, 16}

// A storing is what it took to store windows.
type storing struct {
	dir     string
	windows int
	samples uint64
	cpu     [3]time.Duration // CPU time of windows without merges, and of those with a merge to a level
	n       [3]int           // number of each
	grown   int64            // bytes of windows without merges
	longest time.Duration
}

// mean is the CPU time of a window, or of one with a merge to a level.
func (s *storing) mean(level int) time.Duration {
	return s.cpu[level] / time.Duration(max(s.n[level], 1))
}

// history records real programs, makes windows of a host with many services of them, and stores
// some hours of these as fast as it can. Windows are merged when they are a window and an hour old
// instead of two and eight hours: so each hour has one merge of each kind, as on a host.
func (b bench) history(ctx context.Context) ([]harness.Table, error) {
	how := b.how.history
	recorded, err := b.recordWindows(ctx)
	if err != nil {
		return nil, err
	}
	host := newHost(recorded, how)
	fmt.Fprintf(b.out, "history: recorded %d windows of a host\n", len(host.windows))
	table, err := host.store(ctx, how)
	if err != nil {
		return nil, err
	}
	return []harness.Table{{Marker: "history", Table: table}}, nil
}

// store stores windows, and returns what a day of them costs.
func (h *host) store(ctx context.Context, how historyManner) (table report.Table, err error) {
	dir, err := os.MkdirTemp("", "history")
	if err != nil {
		return table, err
	}
	defer os.RemoveAll(dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store, err := history.Open(dir, &history.Options{MaxSize: 10e9, Fine: historyWindow, Medium: time.Hour,
		Now: func() time.Time { return now }})
	if err != nil {
		return table, err
	}
	defer store.Close()
	s := storing{dir: dir}
	for range how.hours*hourWindows + hourWindows/2 {
		if err := ctx.Err(); err != nil {
			return table, err
		}
		if err := s.add(store, h.window(now)); err != nil {
			return table, err
		}
		now = now.Add(historyWindow)
	}
	sizes, files, err := segments(dir)
	if err != nil {
		return table, err
	}
	day, written := int64(0), int64(0)
	for level := range sizes {
		if sizes[level] /= max(files[level], 1); level == 0 {
			sizes[0] = s.grown * int64(hourWindows) / int64(s.n[0])
		}
		day += int64(dayHours[level]) * sizes[level]
		written += 24 * sizes[level]
	}
	began := time.Now()
	if _, err := history.Read(dir).Query(ctx, history.Selection{From: now.Add(-20 * time.Minute),
		To: now.Add(-15 * time.Minute), Service: "service-01", Content: sink.Time}); err != nil {
		return table, err
	}
	query := time.Since(began)
	began = time.Now()
	timelines, err := history.Read(dir).Timeline(ctx, now.AddDate(0, 0, -1), now, "")
	if err != nil {
		return table, err
	}
	timeline := time.Since(began) * time.Duration(dayHours[0]*360+dayHours[1]*60+
		dayHours[2]*6) / time.Duration(len(timelines))

	add := s.mean(0)
	merge := (s.mean(1) + s.mean(2) - 2*add) / time.Duration(hourWindows)
	core := (add + merge).Seconds() / historyWindow.Seconds()
	table = report.Table{Header: []string{fmt.Sprintf("a day of %d services", how.services), "measured", "aim", ""}}
	table.Add("samples of CPU time in a window of 10 s", fmt.Sprintf("%.0f", float64(s.samples)/float64(s.windows)), "",
		"")
	table.Add("an hour in windows of 10 s, 1 min, 10 min, MB",
		fmt.Sprintf("%.1f, %.1f, %.1f", float64(sizes[0])/1e6, float64(sizes[1])/1e6, float64(sizes[2])/1e6), "", "")
	table.Add("largest size, MB", fmt.Sprintf("%.0f", float64(day)/1e6), fmt.Sprintf("≤ %.0f", historySizeAim/1e6),
		report.Verdict(day <= historySizeAim))
	table.Add("CPU time of a window, ms", fmt.Sprintf("%.1f", 1e3*add.Seconds()), "", "")
	table.Add("CPU time of merging, for a window, ms", fmt.Sprintf("%.1f", 1e3*merge.Seconds()), "", "")
	table.Add("both, % of a core", fmt.Sprintf("%.2f", 100*core), fmt.Sprintf("≤ %.1f", 100*historyCoreAim),
		report.Verdict(core <= historyCoreAim))
	table.Add("longest, with the merge of an hour, s", fmt.Sprintf("%.1f", s.longest.Seconds()), "", "")
	table.Add("written, MB a day", fmt.Sprintf("%.0f", float64(written)/1e6), "", "")
	table.Add("reading five minutes of a service, ms", fmt.Sprintf("%.0f", 1e3*query.Seconds()), "", "")
	table.Add("reading the timeline of the day, ms", fmt.Sprintf("%.0f", 1e3*timeline.Seconds()), "", "")
	return table, nil
}

// add stores a window.
func (s *storing) add(store *history.Store, p *profile.Profile) error {
	was, before := store.Stats(), cpuTime()
	if err := store.Add(p); err != nil {
		return err
	}
	d, is := cpuTime()-before, store.Stats()
	s.windows++
	s.samples += p.Counts.Folded
	s.longest = max(s.longest, d)
	level := 0
	if is.Merges == was.Merges {
		s.grown += is.Size - was.Size
	} else if _, files, err := segments(s.dir); err != nil {
		return err
	} else if level = 1; int(files[2]) > s.n[2] {
		level = 2
	}
	s.cpu[level] += d
	s.n[level]++
	return nil
}

// segments returns the bytes and the number of the files of each level.
func segments(dir string) (bytes, files [3]int64, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return bytes, files, err
	}
	for _, f := range list {
		info, err := f.Info()
		if err != nil {
			return bytes, files, err
		}
		level, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(f.Name()), "."))
		if err != nil || level < 0 || level >= len(files) {
			return bytes, files, fmt.Errorf("%s is no segment", f.Name())
		}
		bytes[level] += info.Size()
		files[level]++
	}
	return bytes, files, nil
}

// recordWindows records programs of the suite, all at once, with an agent of this process, in
// windows of a second.
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
	go func() { worked <- runAll(guests, runFor(b.how.history.recorded+2*time.Second)) }()
	var windows []*profile.Profile
	err = a.Follow(ctx, time.Second, func(p *profile.Profile) {
		windows = append(windows, p)
		if len(windows) >= int(b.how.history.recorded/time.Second) {
			stop()
		}
	})
	for _, ended := range []chan error{ran, worked} {
		if e := <-ended; err == nil && e != nil && ctx.Err() == nil {
			err = e
		}
	}
	if err == nil && len(windows) == 0 {
		err = errors.New("no window was recorded")
	}
	return windows, err
}

// cpuTime is that of this process so far, its garbage collector included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
