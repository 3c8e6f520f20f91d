package top

import (
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// began is when the first window of tests begins.
var began = time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)

// A stack is a weighted stack of a test: names from the outermost to the innermost, separated by ;.
// A name that begins with k: is the kernel's, with n: a library's.
type stack struct {
	thread string
	frames string
	n      uint64
}

func frames(text string) (list []symbol.Symbol) {
	for name := range strings.SplitSeq(text, ";") {
		frame := symbol.Frame{Function: name, Kind: symbol.KindJIT}
		if rest, ok := strings.CutPrefix(name, "k:"); ok {
			frame = symbol.Frame{Function: rest, Kind: symbol.KindKernel}
		} else if rest, ok := strings.CutPrefix(name, "n:"); ok {
			frame = symbol.Frame{Function: rest, Kind: symbol.KindNative}
		}
		list = append([]symbol.Symbol{symbol.Intern(frame)}, list...)
	}
	return list
}

// process is a JVM with these stacks.
func process(pid int, service string, stacks ...stack) *profile.Process {
	p := &profile.Process{PID: pid, Comm: "java", Runtime: "hotspot", Service: service}
	trees := map[string]*profile.Thread{}
	for _, s := range stacks {
		t := trees[s.thread]
		if t == nil {
			t = &profile.Thread{TID: pid + len(trees), Name: s.thread, Tree: new(cct.Tree[symbol.Symbol])}
			trees[s.thread] = t
			p.Threads = append(p.Threads, t)
		}
		t.Tree.Add(frames(s.frames), s.n)
	}
	return p
}

// events adds events of one kind: a stack for each, its weight being the number of events, and the
// label and value of one.
func events(p *profile.Process, kind profile.EventKind, label string, value float64, stacks ...stack) {
	e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbol.Symbol])}
	for _, s := range stacks {
		row := profile.EventRow{Context: e.Tree.Add(frames(s.frames), s.n), Thread: s.thread, Events: s.n}
		row.Class = label
		row.Values[kind.Main()] = value * float64(s.n)
		e.Rows = append(e.Rows, row)
	}
	p.Events = append(p.Events, e)
}

// waits adds off-CPU time: a stack for each, of one wait of that length, and what it is for.
func waits(p *profile.Process, what string, length time.Duration, stacks ...stack) {
	e := &profile.Events{Kind: profile.OffCPU, Tree: new(cct.Tree[symbol.Symbol])}
	for _, s := range stacks {
		row := profile.EventRow{Context: e.Tree.Add(frames(s.frames), s.n), Thread: s.thread, Events: s.n}
		row.What = what
		row.Values[profile.OffCPU.Main()] = float64(length) * float64(s.n)
		e.Rows = append(e.Rows, row)
	}
	p.Events = append(p.Events, e)
}

// at is the nth window of two seconds, sampled at 100 Hz.
func at(n int, processes ...*profile.Process) *profile.Profile {
	return &profile.Profile{
		Start: began.Add(time.Duration(n) * 2 * time.Second), Duration: 2 * time.Second, Period: 10 * time.Millisecond,
		Processes: processes,
	}
}

// shop is a busy service whose method find takes n samples of 100.
func shop(find uint64) *profile.Process {
	p := process(4711, "shop.service",
		stack{"http-nio-8080-exec-1",
			"java.lang.Thread.run;org.acme.shop.web.SearchController.handle;org.acme.shop.catalogue.Index.find", find},
		stack{"http-nio-8080-exec-2",
			"java.lang.Thread.run;org.acme.shop.web.SearchController.handle;java.util.regex.Pattern.<init>", 60 - find},
		stack{"http-nio-8080-exec-2",
			"java.lang.Thread.run;org.acme.shop.web.SearchController.handle;n:deflate_slow(internal_state*, int)", 9},
		stack{"main", "java.lang.Thread.run;org.acme.shop.Main.poll;k:do_epoll_wait", 11},
		stack{"C2 CompilerThre", "n:Compile::Optimize()", 14},
		stack{"GC Thread#0", "n:G1ParScanThreadState::trim_queue", 6},
	)
	events(p, profile.Pauses, "", 3e6, stack{"VM Thread", "n:VM_Operation::evaluate", 1})
	return p
}

// billing is a service with two processes.
func billing() []*profile.Process {
	run := stack{"worker-7", "java.lang.Thread.run;org.acme.billing.Invoice.total", 12}
	return []*profile.Process{process(5001, "billing", run), process(5002, "billing", run)}
}

// filled is a model with some windows in which shop became busier.
func filled(windows int) *Model {
	m := NewModel(2)
	for n := range windows {
		find := uint64(10)
		if n > windows/2 {
			find = 40
		}
		m.Observe(at(n, append(billing(), shop(find))...))
	}
	return m
}
