package faults

// redZoneRows are about the kernel's writes at probes.
var redZoneRows = []Row{
	{
		Fault: "a probe of vmprof.h in a function that calls nothing",
		Holds: "Results are the same with probes on all six macros and without, at -O0 to -O3: the macros place a " +
			"NOP of one " +
			"byte. The only NOP of five bytes is in assembly code that keeps nothing below its stack pointer.",
		Elsewhere: []string{"agent/probe/attach.TestProbeRedZone", "tests/guests.TestVMHeader"},
	},
	{
		Fault: "a probe on a NOP of several bytes that others placed",
		Holds: "If the kernel replaces such NOPs by a call, the agent refuses the probe and reports the reason and " +
			"the remedy. It accepts " +
			"functions that provably keep nothing below the stack pointer. A VM with an old vmprof.h is refused for " +
			"the same reason.",
		Elsewhere: []string{"agent/probe/attach.TestProbeRedZoneOfOthers", "agent/probe/probesite.TestOwnsStack",
			"agent/collect/calls/page.TestLiveLongNops"},
	},
	{
		Fault:     "the probes of libjvm",
		Holds:     "All are on one-byte NOPs, which the kernel emulates (JDK 17 and 25).",
		Elsewhere: []string{"agent/probe/probesite.TestLiveNotesOfLibjvm"},
	},
	{
		Fault: "a probe on a page of code that is not in memory",
		Holds: "The agent reads the pages of probes and semaphores before it attaches, so the kernel does not have " +
			"to read " +
			"them from disk while a program maps the file.",
		Elsewhere: []string{"agent/probe/attach.TestProbeWarmsPages"},
	},
	{
		Fault: "a PREEMPT_RT kernel whose BPF ring buffer sleeps",
		Holds: "`doctor` and every recording refuse the kernel with that reason, because sampling interrupts must " +
			"not sleep. Kernels without " +
			"PREEMPT_RT, and those with a lock that does not sleep (6.12 and later, and stable kernels with the " +
			"fix), are used.",
		Kernels: "a table of kernels, and the machine's kernel",
		Elsewhere: []string{"agent/probe/attach.TestRingSleeps", "agent/probe/attach.TestKernelRingLock",
			"agent/doctor.TestChecks"},
	},
	{
		Fault: "a hypervisor that loses the cause of debug exceptions",
		Holds: "On x86-64 no hardware breakpoint is set in a virtual machine unless `--breakpoints=always` is given, " +
			"and then only " +
			"after a trial in the agent's own process. The agent survives a lost exception.",
		Elsewhere: []string{"agent/probe/breakpoint.TestPolicy", "agent/probe/breakpoint.TestLostTrapIsSurvived",
			"tests.TestCallsChecksumOfJVM"},
	},
}
