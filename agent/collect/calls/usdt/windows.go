package usdt

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const (
	// windowLimit is how long a window waits for the calls of its burst, in wall-clock time. It is
	// long enough for a process that shares its CPU to be scheduled.
	windowLimit = 50 * time.Millisecond
	// maxWindows is the maximum number of open windows, in different processes; maxClosing is how
	// many more may be closing. Each holds a thread that waits for the kernel.
	maxWindows, maxClosing = 4, 12
	// ownShare is the share of one CPU that the agent itself may spend on attaching and detaching,
	// and ownAhead how far it may be ahead of that. While it attaches, the kernel delays every fork
	// on the machine, so this bounds that as well.
	ownShare = 0.02
	ownAhead = 50 * time.Millisecond
	// maxFailed is the number of failed windows in a row after which a process is no longer
	// sampled.
	maxFailed = 3
)

// A window is the time in which a process's probe is attached.
type window struct {
	guest *guest
	burst uint64
	full  chan struct{} // closed when the burst has its samples
}

// listen serves the kernel side's requests until the engine closes.
func (e *Engine) listen() {
	defer close(e.listened)
	for {
		record, err := e.notices.Next()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				e.log.Error("cannot read the attach requests of the usdt programs", "err", err)
			}
			return
		}
		if len(record) < int(unsafe.Sizeof(bpf.USDTNotice{})) {
			continue
		}
		n := *(*bpf.USDTNotice)(unsafe.Pointer(unsafe.SliceData(record)))
		switch bpf.USDTAction(n.Action) {
		case bpf.USDTOpen:
			e.request(&n)
		case bpf.USDTFull:
			e.full(&n)
		}
	}
}

// request opens a window, or tells the kernel side that there is none.
func (e *Engine) request(n *bpf.USDTNotice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.guests[int(n.Pid)]
	if g == nil || g.kernel.StartTicks != n.StartTicks {
		return
	}
	if e.closed || e.windows[g.id.PID] != nil || len(e.windows) >= maxWindows || e.closings >= maxClosing ||
		!e.affords() {
		e.end(g, n.Burst)
		return
	}
	w := &window{guest: g, burst: n.Burst, full: make(chan struct{})}
	e.windows[g.id.PID] = w
	e.serving.Go(func() { e.serve(w) })
}

// affords reports whether the agent has CPU time left for a window; mu is held.
func (e *Engine) affords() bool {
	return float64(e.own) < ownShare*float64(time.Since(e.began))+float64(ownAhead)
}

// full ends the window of a burst that has its samples.
func (e *Engine) full(n *bpf.USDTNotice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.windows[int(n.Pid)]; w != nil && w.burst == n.Burst {
		select {
		case <-w.full:
		default:
			close(w.full)
		}
	}
}

// end tells the kernel side that a burst no longer has a window; mu is held.
func (e *Engine) end(g *guest, burst uint64) {
	if e.guests[g.id.PID] == g {
		e.usdt.UsdtClosed.Put(uint32(g.id.PID), burst)
	}
}

// serve handles one window. The goroutine has a thread of its own, so that its CPU time can be
// measured.
func (e *Engine) serve(w *window) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, before := w.guest, proc.OwnThreadTime()
	links, err := e.attach(g)
	if err == nil {
		cpu, _ := proc.CPUTime(g.id.PID)
		over := time.NewTimer(windowLimit)
		select {
		case <-w.full:
		case <-over.C:
			now, _ := proc.CPUTime(g.id.PID)
			e.weigher.cut(uint32(g.id.PID), w.burst, now-cpu)
		}
		over.Stop()
	}
	e.mu.Lock()
	delete(e.windows, g.id.PID)
	e.closings++
	e.opened++
	e.end(g, w.burst) // closing removes the probe at once; the rest of it is waiting
	e.mu.Unlock()
	err = errors.Join(err, attach.CloseLinks(links))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closings--
	e.own += proc.OwnThreadTime() - before
	e.judge(g, err)
}

// judge stops sampling a process whose probe cannot be attached; mu is held.
func (e *Engine) judge(g *guest, err error) {
	if err == nil || errors.Is(err, proc.ErrGone) {
		g.failed = 0
		return
	}
	if g.failed++; g.failed >= maxFailed && e.guests[g.id.PID] == g {
		e.note("calls of process %d are no longer sampled: %v", g.id.PID, err)
		e.forget(g)
	}
}

// attach attaches the probe in one process.
func (e *Engine) attach(g *guest) ([]link.Link, error) {
	links, err := e.uprobes.AttachProcess(g.image.file, g.id.PID, e.usdt.UsdtEntry, g.image.sites)
	gone := e.opt.Proc.Check(g.id) // the pid may have been reused before it was passed to the kernel
	if gone != nil {
		return nil, errors.Join(gone, attach.CloseLinks(links))
	}
	if err != nil {
		l := &languages[g.image.language]
		return nil, fmt.Errorf("attach to %s:%s: %w", l.provider, l.probe, err)
	}
	return links, nil
}
