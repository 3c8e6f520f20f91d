package faults

// These rows are tested by bpf/*_test.go, in the kernel and without a target, also on older
// kernels.
const kernels = "6.1, 6.12, the machine's kernel"

// withoutFeature is what the agent does on kernels without a feature that
// agent/probe/attach.TestKernelFeatures tries.
var withoutFeature = map[string]string{
	"uprobe.multi links": "It attaches single probes, for all processes that map the file. They need CAP_SYS_ADMIN.",
	"uprobe.multi links of a process, which see all its threads": "It attaches for all processes that map the file, " +
		"and its programs look at the process id.",
	"NOPs of several bytes at probes stay what they are": "It refuses such probes in functions that may keep " +
		"something below the stack pointer.",
	"lock of BPF ring buffers": "With PREEMPT_RT it refuses kernels whose lock is " +
		"a `spinlock_t`, which sleeps there.",
	"waits end at `sched_exit_tp`": "It follows `__perf_event_task_sched_in`, with a " +
		"perf event of its own, and cuts walks after 50 µs.",
	"waits end at `__perf_event_task_sched_in`": "Off-CPU time needs one of both.",
	"the kernel's tick by update_process_times": "It follows the timer of the tick.",
	"the kernel's tick by hrtimer_expire_entry": "CPU time is sampled by `--clock=cpu-clock` unless " +
		"the kernel has the other one.",
}

// kernelTargetRows are about harm to targets, and to the correctness of their profiles.
var kernelTargetRows = []Row{
	{
		Fault: "a process does its I/O through io_uring",
		Holds: "Samples of io_uring's workers have kernel frames only. No time is charged to the code that " +
			"created a worker.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelIOWorkerSamples", "bpf.TestKernelIOWorkerFaults"},
	},
	{
		Fault: "a thread's stack is written to make a walk long",
		Holds: "For one sample the agent searches at most 512 words of the stack and reads at most 8,192 words " +
			"of code descriptions, whatever the stack holds. Missing frames are marked `[truncated: scan budget]` " +
			"and counted.",
		Kernels: kernels,
		Elsewhere: []string{"bpf.TestKernelScanBudget", "bpf.TestKernelScanBudgetIsOfOneSample",
			"bpf.TestKernelUnknownFrames"},
	},
	{
		Fault: "a thread's stack takes long to walk: thousands of frames, each in a page of its own",
		Holds: "A walk looks at the clock after 32 frames or words, and ends after 150 µs, or 50 µs where the " +
			"kernel holds a lock. If a virtual CPU stands still between two looks, half of that counts at most. " +
			"Missing frames are marked `[… cut: time]` and counted (`vmprof_walks_cut_total`).",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelWalkTime"},
	},
	{
		Fault: "samples take more than 5 % of a CPU",
		Holds: "They are taken less often, on all CPUs alike, until they take 5 % at most, or are 20 ms apart. " +
			"The profile names the period.",
		Elsewhere: []string{"agent/probe/attach.TestPace", "agent/probe/attach.TestPaceOfRareTicks",
			"agent/probe/attach.TestKernelPeriod"},
	},
}

// kernelAgentRows are about what targets could do to the agent's records, and to those of other
// targets.
var kernelAgentRows = []Row{
	{
		Fault: "a throttled thread has the working memory of a CPU",
		Holds: "Other observations on that CPU take one of four spares, which all CPUs share. Without a free one " +
			"they are dropped and counted.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelObservationBusy"},
	},
	{
		Fault: "a machine may have many more CPUs than are online",
		Holds: "Working memory is for the CPUs that are online at the start. `doctor` shows what the kernel " +
			"needs. CPUs that come online later are sampled with four rooms that they share: a sample that finds its " +
			"room in use is counted as dropped (`unknown_cpu`).",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestRoomForCPUs", "bpf.TestKernelLaterCPUs", "agent/probe/attach.TestKernelHotplug"},
	},
	{
		Fault: "BPF programs and modules are loaded and unloaded while the agent runs, its own among them",
		Holds: "Kernel frames have the name of the program that is there, or none: each program has its own end. " +
			"The agent follows programs by perf events, and reads the names of modules again when their list changes.",
		Kernels: kernels,
		Elsewhere: []string{"agent/probe/attach.TestKernelLoadedCode", "symbolize.TestLoaded",
			"symbolize.TestKernelLoaded"},
	},
	{
		Fault: "a kernel whose uprobe.multi links with a process id see only the first thread of the process " +
			"(6.6 to 6.6.34, to 6.9.4)",
		Holds: "The agent tries it with a second thread of its own. On such kernels it attaches without a " +
			"process id, and its programs look at the id: exact counts and the page engine see all threads.",
		Kernels:   kernels,
		Elsewhere: []string{"agent/probe/attach.TestKernelPIDFilter", "agent/probe/attach.TestProbeForAllProcesses"},
	},
	{
		Fault: "a thread loses its CPU while the agent's probe runs in it",
		Holds: "The probe builds its record outside the event stream, so the agent can read other records " +
			"meanwhile. If the thread loses the CPU while it copies the record, the reader sleeps until the copy is " +
			"complete. A record without working memory is dropped and counted.",
		Kernels: kernels,
		Elsewhere: []string{"bpf.TestUprobesReserveNothing", "agent/probe/ring.TestReaderWaitsForWriter",
			"agent/probe/ring.TestReaderUnfinished", "bpf.TestKernelCodeLoadBusy", "bpf.TestKernelObservationBusy"},
	},
	{
		Fault: "a counter of the CPU interrupts a program of the agent while it writes a record",
		Holds: "Records of such interrupts go into a separate ring, so they do not need a lock that the other " +
			"program holds. The agent merges both rings by time.",
		Elsewhere: []string{"bpf.TestInterruptingRing", "agent/probe/ring.TestReaderOrder",
			"agent/probe/ring.TestKernelRings"},
	},
	{
		Fault: "a program does something else at every Nth hit of a probe",
		Holds: "If one hit in N is recorded, it is drawn at random. Both kinds of hits are recorded in their " +
			"true proportions.",
		Elsewhere: []string{"bpf.TestProbeDrawsOfPeriods", "bpf.TestProbeDrawsDiffer"},
	},
	{
		Fault:     "threads end while they wait",
		Holds:     "The tables of waiting threads keep no entry of them.",
		Elsewhere: []string{"bpf.TestProbeMonitorOfDeadThread"},
	},
	{
		Fault: "a JVM allocates before the agent has attached to it",
		Holds: "Allocations and waits until then are counted separately (`vmprof_event_unattached_hits_total`). " +
			"None is recorded without a class.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelAllocationUnattached", "bpf.TestProbeMonitorUnattached"},
	},
	{
		Fault: "the id of a thread is used again, in a JVM whose threads are found by their ids (a stripped " +
			"libjvm)",
		Holds: "The agent forgets threads that end. A thread never gets the stack of another one. An id counts " +
			"only if the thread existed when the agent read the id, and if the JVM's structure of the thread " +
			"contains the same id.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelThreadByID", "bpf.TestKernelThreadForgotten"},
	},
	{
		Fault: "JVMs whose threads are found by their ids have more than 16,384 of them",
		Holds: "Samples of further threads in native code may lack their Java callers. These threads are counted " +
			"in metrics and noted in the profile.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelThreadsFull", "agent.TestRoomNotes"},
	},
	{
		Fault: "more than 8,192 processes are chosen, or more than 16,384 threads wait at once",
		Holds: "Further processes and waits are counted in metrics and noted in the profile. The others are " +
			"recorded.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelChosenFull", "bpf.TestProbeMonitorTableFull", "agent.TestRoomNotes"},
	},
}
