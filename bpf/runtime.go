package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A ThreadRun is how long a thread has run. Layout and units: runtime.h.
type ThreadRun = RunTimeThreadRun

// A ThreadEnd is the record of a thread that has ended. Layout and units: runtime.h.
type ThreadEnd = RunTimeThreadEnd

// RunTimes read how long threads have run, as the scheduler counts it.
type RunTimes struct {
	objects struct {
		RunTimeMaps
		Each     *ebpf.Program  `ebpf:"each_run_time"`
		Ends     *ebpf.Program  `ebpf:"thread_ends"`
		Switches *ebpf.Program  `ebpf:"thread_switches"`
		Timers   *ebpf.Program  `ebpf:"timer_starts"`
		Ended    *ebpf.Variable `ebpf:"threads_ended"`
		Recorded *ebpf.Variable `ebpf:"threads_recorded"`
	}
	ends  []link.Link
	tasks *link.Iter
}

// LoadRunTimes loads the programs next to o, and attaches them: from then on each thread that ends
// has a record (EventThreadEnd). Close comes before that of o.
func (o *Objects) LoadRunTimes() (*RunTimes, error) {
	spec, err := LoadRunTime()
	if err != nil {
		return nil, fmt.Errorf("read object of run times: %w", err)
	}
	r := &RunTimes{}
	if err := o.LoadBeside(spec, &r.objects); err != nil {
		return nil, fmt.Errorf("load programs of run times: %w", err)
	}
	for _, p := range []*ebpf.Program{r.objects.Timers, r.objects.Switches, r.objects.Ends} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("follow threads: %w", err), r.Close())
		}
		r.ends = append(r.ends, l)
	}
	if r.tasks, err = link.AttachIter(link.IterOptions{Program: r.objects.Each}); err != nil {
		return nil, errors.Join(fmt.Errorf("read run times: %w", err), r.Close())
	}
	return r, nil
}

// All returns how long each thread of the chosen processes has run so far.
func (r *RunTimes) All() (threads []ThreadRun, err error) {
	tasks, err := r.tasks.Open()
	if err != nil {
		return nil, fmt.Errorf("read run times: %w", err)
	}
	defer tasks.Close()
	var one ThreadRun
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	for from := bufio.NewReaderSize(tasks, 1<<16); ; {
		switch _, err := io.ReadFull(from, raw); {
		case errors.Is(err, io.EOF):
			return threads, nil
		case err != nil:
			return nil, fmt.Errorf("read run times: %w", err)
		}
		threads = append(threads, one)
	}
}

// Ended is how many threads of chosen processes have begun to end, and how many of these have a
// record: those that will not run again.
func (r *RunTimes) Ended() (ended, recorded uint64, err error) {
	if err := errors.Join(r.objects.Recorded.Get(&recorded), r.objects.Ended.Get(&ended)); err != nil {
		return 0, 0, fmt.Errorf("read how many threads have ended: %w", err)
	}
	return ended, recorded, nil
}

// Maps returns the generated struct of the maps.
func (r *RunTimes) Maps() any { return r.objects.RunTimeMaps }

// Close detaches and frees the programs.
func (r *RunTimes) Close() error {
	var errs []error
	for _, l := range r.ends {
		errs = append(errs, l.Close())
	}
	if r.tasks != nil {
		errs = append(errs, r.tasks.Close())
	}
	return errors.Join(append(errs, r.objects.Each.Close(), r.objects.Ends.Close(), r.objects.Switches.Close(),
		r.objects.Timers.Close(), r.objects.RunTimeMaps.Close())...)
}
