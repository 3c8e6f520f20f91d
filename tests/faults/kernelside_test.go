package faults

// What the programs in the kernel do is tested there, without a target: bpf/*_test.go. These run on older kernels, too.
const kernels = "6.1, 6.12, the machine's kernel"

// kernelTargetRows are about harm to targets, and to the truth about them.
var kernelTargetRows = []Row{
	{
		Fault:     "a process does its I/O through io_uring",
		Holds:     "Samples of io_uring's workers have kernel frames only. No time is charged to the code that created a worker.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelIOWorkerSamples", "bpf.TestKernelIOWorkerFaults"},
	},
}
