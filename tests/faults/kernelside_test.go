package faults

// These rows are tested by bpf/*_test.go, in the kernel and without a target, also on older kernels.
const kernels = "6.1, 6.12, the machine's kernel"

// kernelTargetRows are about harm to targets, and to the truth about them.
var kernelTargetRows = []Row{
	{
		Fault:     "a process does its I/O through io_uring",
		Holds:     "Samples of io_uring's workers have kernel frames only. No time is charged to the code that created a worker.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelIOWorkerSamples", "bpf.TestKernelIOWorkerFaults"},
	},
	{
		Fault:     "a thread's stack is written to make a walk long",
		Holds:     "For one sample the agent searches at most 512 words of the stack and reads at most 8,192 words of code descriptions, whatever the stack holds. Missing frames are marked `[truncated: scan budget]` and counted.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelScanBudget", "bpf.TestKernelScanBudgetIsOfOneSample", "bpf.TestKernelUnknownFrames"},
	},
}

// kernelAgentRows are about what targets could do to the agent's records, and to those of other targets.
var kernelAgentRows = []Row{
	{
		Fault:     "a thread loses its CPU while the agent's probe runs in it",
		Holds:     "It builds its record outside the event stream, so other records are read meanwhile. If it loses the CPU while it copies the record there, the reader sleeps until it goes on. A record for which there is no working memory is dropped and counted.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestUprobesReserveNothing", "agent/ring.TestReaderWaitsForWriter", "agent/ring.TestReaderUnfinished", "bpf.TestKernelCodeLoadBusy", "bpf.TestKernelObservationBusy"},
	},
	{
		Fault:     "a counter of the CPU interrupts a program of the agent while it writes a record",
		Holds:     "Records of such an interrupt go into a ring of their own, so they need no lock that the other program has. The agent reads both rings in the order of time.",
		Elsewhere: []string{"bpf.TestInterruptingRing", "agent/ring.TestReaderOrder", "agent/ring.TestKernelRings"},
	},
	{
		Fault:     "a program does something else at every Nth hit of a probe",
		Holds:     "Where one hit in N is recorded, which one of each N is drawn by lot. Both kinds of hits are recorded in their proportions.",
		Elsewhere: []string{"bpf.TestProbeDrawsOfPeriods", "bpf.TestProbeDrawsDiffer"},
	},
	{
		Fault:     "threads end while they wait",
		Holds:     "Nothing of them stays in the tables of waiting threads.",
		Elsewhere: []string{"bpf.TestProbeMonitorOfDeadThread"},
	},
	{
		Fault:     "a JVM allocates before the agent has attached to it",
		Holds:     "Its allocations and waits until then are counted apart, and none is recorded without a name.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelAllocationUnattached", "bpf.TestProbeMonitorUnattached"},
	},
	{
		Fault:     "the id of a thread is used again, in a JVM whose threads are found by their ids (a stripped libjvm)",
		Holds:     "A thread that ends is forgotten. A thread gets no stack of another one: an id is only believed if the thread had begun when it was learned, and if the JVM's own structure of the thread has the same id.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelThreadByID", "bpf.TestKernelThreadForgotten"},
	},
	{
		Fault:     "JVMs whose threads are found by their ids have more than 16,384 of them",
		Holds:     "Threads that find no room may lack the Java callers of native code. They are counted, in metrics and in a note in the profile.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelThreadsFull", "agent.TestRoomNotes"},
	},
	{
		Fault:     "more than 8,192 processes are chosen, or more than 16,384 threads wait at once",
		Holds:     "Processes and waits without room are counted, in metrics and in a note in the profile. The rest is recorded.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelChosenFull", "bpf.TestProbeMonitorTableFull", "agent.TestRoomNotes"},
	},
}
