package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// An OffCPUThread is a thread that is off the CPU, unless Since is 0. Layout and units: offcpu.h.
type OffCPUThread = OffCPUOffCpuThread

// States of threads that are off the CPU: flags of an ObservedWait.
const (
	OffCPUBlocked   = uint8(OffCPUOffCpuStateOFF_CPU_BLOCKED)
	OffCPUDisk      = uint8(OffCPUOffCpuStateOFF_CPU_DISK)
	OffCPUPreempted = uint8(OffCPUOffCpuStateOFF_CPU_PREEMPTED)
	OffCPUThrottled = uint8(OffCPUOffCpuStateOFF_CPU_THROTTLED)
	OffCPUStopped   = uint8(OffCPUOffCpuStateOFF_CPU_STOPPED)
)

// Values of an ObservedWait, by index.
const (
	WaitSince = int(OffCPUWaitValuesWAIT_SINCE)
	WaitDelay = int(OffCPUWaitValuesWAIT_DELAY)
	WaitMean  = int(OffCPUWaitValuesWAIT_MEAN)
	WaitPC    = int(OffCPUWaitValuesWAIT_PC)
	WaitSP    = int(OffCPUWaitValuesWAIT_SP)
	WaitWoken = int(OffCPUWaitValuesWAIT_WOKEN)
	WaitLeast = int(OffCPUWaitValuesWAIT_LEAST)
)

// Values of an ObservedWaker, by index.
const (
	WakerTID   = int(OffCPUWakerValuesWAKER_TID)
	WakerSince = int(OffCPUWakerValuesWAKER_SINCE)
)

// Flags of an ObservedWaker.
const (
	WakerChosen = uint8(OffCPUWakerFlagsWAKER_CHOSEN) // its process is profiled
	WakerKernel = uint8(OffCPUWakerFlagsWAKER_KERNEL) // a thread of the kernel, or none
)

// ProbeWait is the number of the probe of an ObservedWait: PROBE_WAIT.
const ProbeWait = 1020

// MaxFollowedThreads bounds the threads that are followed: MAX_FOLLOWED_THREADS.
const MaxFollowedThreads = 65536

// MaxMeanInterval bounds OffCPU.SetMean: MAX_MEAN_INTERVAL.
const MaxMeanInterval = time.Duration(1<<36 - 1)

// LockedWalk bounds walks of stacks where a lock of the kernel is held: that of a run queue, or of
// a thread that is woken.
const LockedWalk = 50 * time.Microsecond

// An OffCPU records the waits of threads that are off the CPU. Records are observations
// (ObservedWait).
type OffCPU struct {
	objects offCPUObjects
	returns *ebpf.Program
	woken   *ebpf.Program // nil unless wakers are recorded
	links   []link.Link
	tasks   *link.Iter
	// event is a perf event of a task: while there is one, the kernel calls
	// __perf_event_task_sched_in at each switch.
	event int
	begun uint32 // how often Begin was called
	turn  uint16 // rotation
}

// offCPUObjects are what of the object is always loaded.
type offCPUObjects struct {
	OffCPUMaps
	Switches     *ebpf.Program  `ebpf:"thread_switches"`
	Begins       *ebpf.Program  `ebpf:"thread_begins"`
	EachThread   *ebpf.Program  `ebpf:"each_thread"`
	MeanInterval *ebpf.Variable `ebpf:"mean_interval"`
	RecordPause  *ebpf.Variable `ebpf:"record_pause"`
	Recording    *ebpf.Variable `ebpf:"recording"`
	FollowEvery  *ebpf.Variable `ebpf:"follow_every"`
	Rotation     *ebpf.Variable `ebpf:"rotation"`
	Followed     *ebpf.Variable `ebpf:"followed_counts"`
	InsideMean   *ebpf.Variable `ebpf:"open_invocation_interval"`
}

// A ReturnHook is where a program sees that a thread has come back to a CPU.
type ReturnHook int

// Hooks, the better first.
const (
	ReturnExit     ReturnHook = iota // the tracepoint sched_exit_tp, Linux 6.15 and later
	ReturnSwitchIn                   // the function __perf_event_task_sched_in, where functions can be traced
)

func (h ReturnHook) String() string {
	return [...]string{ReturnExit: "sched_exit_tp", ReturnSwitchIn: "__perf_event_task_sched_in"}[h]
}

// program is the name of the hook's program.
func (h ReturnHook) program() string {
	return [...]string{ReturnExit: "thread_goes_on", ReturnSwitchIn: "thread_switched_in"}[h]
}

// OffCPUOptions say what an OffCPU records.
type OffCPUOptions struct {
	Hooks  []ReturnHook // hooks to try; nil for all
	Wakers bool         // who ended a wait (ObservedWaker) is recorded, too
	// Inside has waits of that length and longer recorded always of threads in an invocation that
	// is followed (LoadInvocations), unless an eighth (INSIDE_PART) of the length for other threads
	// is more. 0: they are as others.
	Inside time.Duration
}

// LoadOffCPU loads the programs next to o, and attaches them, with the first of the hooks that the
// kernel has. Nothing is recorded before Begin. Close comes before that of o.
func (o *Objects) LoadOffCPU(opt OffCPUOptions) (*OffCPU, error) {
	hooks := opt.Hooks
	if hooks == nil {
		hooks = []ReturnHook{ReturnExit, ReturnSwitchIn}
	}
	var errs []error
	for _, hook := range hooks {
		f, err := o.loadOffCPU(hook, opt)
		if err == nil {
			return f, nil
		}
		errs = append(errs, fmt.Errorf("%v: %w", hook, err))
	}
	return nil, errors.Join(errs...)
}

func (o *Objects) loadOffCPU(hook ReturnHook, opt OffCPUOptions) (*OffCPU, error) {
	spec, err := LoadOffCPU()
	if err != nil {
		return nil, fmt.Errorf("read off-CPU object: %w", err)
	}
	if err := setScratches(spec); err != nil {
		return nil, err
	}
	if opt.Inside <= 0 {
		spec.Maps["open_invocations"].MaxEntries = 1
	}
	if hook == ReturnSwitchIn || opt.Wakers {
		if err := spec.Variables["walk_ns"].Set(uint64(LockedWalk)); err != nil {
			return nil, fmt.Errorf("set constants: %w", err)
		}
	}
	// What is not assigned is not loaded.
	spec.Programs["returns"] = spec.Programs[hook.program()]
	var without struct {
		offCPUObjects
		Returns *ebpf.Program `ebpf:"returns"`
	}
	var with struct {
		offCPUObjects
		Returns *ebpf.Program `ebpf:"returns"`
		Woken   *ebpf.Program `ebpf:"thread_woken"`
	}
	f := &OffCPU{event: -1}
	if opt.Wakers {
		err = o.LoadBeside(spec, &with)
		f.objects, f.returns, f.woken = with.offCPUObjects, with.Returns, with.Woken
	} else {
		err = o.LoadBeside(spec, &without)
		f.objects, f.returns = without.offCPUObjects, without.Returns
	}
	if err != nil {
		return nil, fmt.Errorf("load programs of the scheduler: %w", err)
	}
	if err := f.objects.InsideMean.Set(uint64(max(opt.Inside, 0))); err != nil {
		return nil, errors.Join(fmt.Errorf("set the interval of off-CPU samples in invocations: %w", err), f.Close())
	}
	if hook == ReturnSwitchIn {
		if err := f.openEvent(); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	programs := []*ebpf.Program{f.returns, f.objects.Switches, f.objects.Begins}
	if opt.Wakers {
		programs = append(programs, f.woken)
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("follow the scheduler: %w", err), f.Close())
		}
		f.links = append(f.links, l)
	}
	if f.tasks, err = link.AttachIter(link.IterOptions{Program: f.objects.EachThread}); err != nil {
		return nil, errors.Join(fmt.Errorf("look at threads: %w", err), f.Close())
	}
	return f, nil
}

// openEvent opens a perf event of the main thread, which lives as long as the process. It counts
// nothing.
func (f *OffCPU) openEvent() (err error) {
	f.event, err = unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: unix.PERF_ATTR_SIZE_VER5,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}, os.Getpid(), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open a perf event: %w", err)
	}
	return nil
}

// Begin records waits from now, and takes threads that are off the CPU as leaving now.
func (f *OffCPU) Begin(mean time.Duration) error {
	if err := f.SetMean(0); err != nil {
		return err
	}
	f.begun++
	if err := errors.Join(f.objects.Followed.Set([2]uint32{}), f.objects.Recording.Set(f.begun)); err != nil {
		return fmt.Errorf("begin off-CPU samples: %w", err)
	}
	if err := f.SetMean(mean); err != nil {
		return err
	}
	return f.Follow()
}

// Follow has threads followed whose processes were chosen since Begin. Threads that these make are
// followed by themselves.
func (f *OffCPU) Follow() error { return f.Threads(func(*OffCPUThread) {}) }

// SetMean has waits of that length and longer recorded always, and shorter ones with a probability
// proportional to their length. 0 ends recording.
func (f *OffCPU) SetMean(mean time.Duration) error {
	if err := f.objects.MeanInterval.Set(uint64(min(max(mean, 0), MaxMeanInterval))); err != nil {
		return fmt.Errorf("set the mean interval of off-CPU samples: %w", err)
	}
	return nil
}

// Mean returns that length. The kernel side doubles it if there are more records than one in each
// pause (SetPause), over some 100 ms.
func (f *OffCPU) Mean() (time.Duration, error) {
	var mean uint64
	if err := f.objects.MeanInterval.Get(&mean); err != nil {
		return 0, fmt.Errorf("read the mean interval of off-CPU samples: %w", err)
	}
	return time.Duration(mean), nil
}

// SetPause sets the least mean time from one record to the next, of all threads together; 0, as at
// first, is none.
func (f *OffCPU) SetPause(pause time.Duration) error {
	if err := f.objects.RecordPause.Set(uint64(max(pause, 0))); err != nil {
		return fmt.Errorf("set the pause between off-CPU samples: %w", err)
	}
	return nil
}

// MaxFollowEvery bounds OffCPU.Rotate.
const MaxFollowEvery = math.MaxUint8

// Rotate begins a rotation: the first 20 waits (FREQUENT_WAITS) of each thread until the next one
// are all followed. Of further ones, one in every is from then on.
func (f *OffCPU) Rotate(every uint32) error {
	if f.turn++; f.turn == 0 {
		f.turn = 1
	}
	if err := errors.Join(f.objects.FollowEvery.Set(min(max(every, 1), MaxFollowEvery)),
		f.objects.Rotation.Set(f.turn)); err != nil {
		return fmt.Errorf("set which waits are followed: %w", err)
	}
	return nil
}

// Threads calls each for every thread that is to be followed, and follows those that are not.
func (f *OffCPU) Threads(each func(*OffCPUThread)) error {
	tasks, err := f.tasks.Open()
	if err != nil {
		return fmt.Errorf("look at threads: %w", err)
	}
	defer tasks.Close()
	var a OffCPUThread
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	for from := bufio.NewReaderSize(tasks, 1<<16); ; {
		_, err := io.ReadFull(from, raw)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("look at threads: %w", err)
		}
		each(&a)
	}
}

// Maps returns the generated struct of the maps.
func (f *OffCPU) Maps() any { return f.objects.OffCPUMaps }

// Close detaches and frees the programs.
func (f *OffCPU) Close() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	if f.tasks != nil {
		errs = append(errs, f.tasks.Close())
	}
	if f.event >= 0 {
		errs = append(errs, unix.Close(f.event))
	}
	return errors.Join(append(errs, f.returns.Close(), f.woken.Close(), f.objects.Switches.Close(),
		f.objects.Begins.Close(), f.objects.EachThread.Close(), f.objects.OffCPUMaps.Close())...)
}
