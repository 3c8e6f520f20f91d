package exact

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options say which process, and how much room there is: see bpf.ExactOptions.
type Options = bpf.ExactOptions

// A Recorder records the calls of one process from Start to Stop. Its methods are for one goroutine
// at a time.
type Recorder struct {
	objects *bpf.ExactObjects
	links   []link.Link
}

// errNotFollowed: memory of code and classes is reused, so counts of old and new code could not be
// separated.
var errNotFollowed = errors.New("the VM does not report its compilations: its libjvm has no USDT probes, or they are " +
	"not attached")

// errArchitecture: where frames are is known for x86-64 only.
var errArchitecture = errors.New("calls are traced on x86-64 only")

// Start begins to record the process opt.PID, which must be attached: its description in
// o.Processes, and the probes that follow its code and classes. lib is the libjvm that it maps, to
// which sites belong. Methods that are called for the first time are announced in o.Events
// (bpf.NewMethod).
func Start(o *bpf.Objects, lib *os.File, sites Sites, opt Options) (_ *Recorder, err error) {
	if runtime.GOARCH != "amd64" {
		return nil, errArchitecture
	}
	var vm bpf.HotspotProcess
	if err := o.Processes.Lookup(uint32(opt.PID), &vm); err != nil {
		return nil, fmt.Errorf("process %d is not attached: %w", opt.PID, err)
	}
	if vm.Flags&bpf.HotspotUnloadEvents == 0 {
		return nil, errNotFollowed
	}
	r := &Recorder{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.objects, err = o.LoadExact(opt); err != nil {
		return nil, err
	}
	if err := r.attach(lib, sites, opt.PID); err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	return r, r.record(uint64(now.Nano()))
}

// record starts the counting of calls and returns at this time; 0 stops it.
func (r *Recorder) record(since uint64) error {
	if err := r.objects.RecordingSince.Set(since); err != nil {
		return fmt.Errorf("switch recording: %w", err)
	}
	return nil
}

func (r *Recorder) attach(lib *os.File, sites Sites, pid int) error {
	p := &r.objects.ExactPrograms
	l, err := link.AttachTracing(link.TracingOptions{Program: p.ThreadExit})
	if err != nil {
		return fmt.Errorf("follow the end of threads: %w", err)
	}
	r.links = append(r.links, l)
	uprobes := attach.NewUprobes()
	type probe struct {
		name  string
		prog  *ebpf.Program
		where uint64
	}
	probes := []probe{
		{"method return", p.MethodReturn, sites.Return},
		{"method entry", p.MethodEntry, sites.Entry},
	}
	for _, s := range sites.Objects {
		program := p.Object
		if s.Second {
			program = p.ObjectBy
		}
		probes = append(probes, probe{"allocation", program, s.Offset})
	}
	for _, probe := range probes {
		links, err := uprobes.Attach(lib, pid, probe.prog, []attach.Site{{Offset: probe.where}})
		if err != nil {
			return fmt.Errorf("probe %s: %w", probe.name, err)
		}
		r.links = append(r.links, links...)
	}
	return nil
}

// Stop ends recording. Its results can be read until Close.
func (r *Recorder) Stop() error {
	var errs []error
	if r.objects != nil {
		errs = append(errs, r.record(0)) // calls and returns at once
	}
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	r.links = nil
	return errors.Join(errs...)
}

// Close stops recording and frees all resources.
func (r *Recorder) Close() error {
	err := r.Stop()
	if r.objects != nil {
		err = errors.Join(err, r.objects.Close())
		r.objects = nil
	}
	return err
}
