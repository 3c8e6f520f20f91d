// Package doctor finds out whether this machine can be profiled. If not, it reports why and the
// remedy.
//
//	report := doctor.Run(ctx, doctor.Host())
//	err := report.WriteText(os.Stdout, 80)
//	if !report.Ready { … }
//
// A check asks the running system, and tries the real operation if possible, because versions and
// settings do not prove what a kernel allows. No trial leaves anything behind.
package doctor

import "context"

// Status is the outcome of a check.
type Status string

const (
	OK      Status = "ok"
	Missing Status = "missing" // recording does not work
	Limited Status = "limited" // recording works, with less in the profile
	Info    Status = "info"    // worth knowing
)

// A Check is one requirement.
type Check struct {
	ID    string // stable, for scripts
	Title string // short: see titleWidth
	Run   func(context.Context, *Env) Result
}

// A Result is the outcome of a check. Why and Remedy are whole sentences, empty if the status is
// OK.
type Result struct {
	Status Status `json:"status"`
	Detail string `json:"detail"`           // what was found
	Why    string `json:"why,omitempty"`    // what it matters for
	Remedy string `json:"remedy,omitempty"` // how to mend it
}

// A Finding is the result of one check.
type Finding struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Result
}

// A Report is the outcome of all checks.
type Report struct {
	Ready    bool      `json:"ready"` // recording works: no check is missing something
	Findings []Finding `json:"checks"`
	JVMs     []JVM     `json:"jvms"` // by pid
	// Interpreters are VMs of other languages than Java, by pid.
	Interpreters []JVM `json:"interpreters,omitempty"`
}

// checks returns the requirements in the order of the report.
func checks() []Check {
	return []Check{
		{"kernel", "kernel", checkKernel},
		{"pid_namespace", "PID namespace", checkPIDNamespace},
		{"architecture", "architecture", checkArchitecture},
		{"btf", "BTF", checkBTF},
		{"lockdown", "lockdown", checkLockdown},
		{"cap_bpf", "CAP_BPF", checkCapBPF},
		{"cap_perfmon", "CAP_PERFMON", checkCapPerfmon},
		{"cap_sys_ptrace", "CAP_SYS_PTRACE", checkCapPtrace},
		{"cap_dac_read_search", "CAP_DAC_READ_SEARCH", checkCapReadSearch},
		{"cap_syslog", "CAP_SYSLOG", checkCapSyslog},
		{"cap_checkpoint_restore", "CAP_CHECKPOINT_RESTORE", checkCapCheckpointRestore},
		{"after_start", "after start", checkAfterStart},
		{"landlock", "Landlock", checkLandlock},
		{"bpf", "BPF programs", checkBPF},
		{"ring_buffer", "BPF ring buffer", checkRingBuffer},
		{"uprobe_multi", "uprobe.multi", checkUprobeMulti},
		{"kernel_memory", "kernel memory", checkKernelMemory},
		{"memlock", "RLIMIT_MEMLOCK", checkMemlock},
		{"perf_event_paranoid", "perf_event_paranoid", checkParanoid},
		{"sampling", "sampling events", checkSampling},
		{"kallsyms", "kernel symbols", checkKallsyms},
		{"ptrace_scope", "Yama ptrace_scope", checkPtraceScope},
		{"hidepid", "hidepid", checkHidepid},
		{"local_users", "local users", checkUsers},
	}
}

// Run runs all checks and looks at every JVM and interpreter.
func Run(ctx context.Context, env *Env) Report {
	r := Report{Ready: true, JVMs: []JVM{}}
	for _, c := range checks() {
		f := Finding{c.ID, c.Title, c.Run(ctx, env)}
		r.Findings = append(r.Findings, f)
		r.Ready = r.Ready && f.Status != Missing
	}
	// The trials mostly wait for the kernel.
	found := make(chan Finding)
	go func() {
		jvms, result := findJVMs(ctx, env)
		for _, j := range jvms {
			if j.kind == kindJVM {
				r.JVMs = append(r.JVMs, *j)
			} else {
				r.Interpreters = append(r.Interpreters, *j)
			}
		}
		found <- Finding{"processes", "processes", result}
	}()
	for _, find := range []func(context.Context, *Env) []Finding{findClock, findOffCPU, findEngines} {
		r.Findings = append(r.Findings, find(ctx, env)...)
	}
	r.Findings = append(r.Findings, <-found)
	return r
}

func ok(detail string) Result { return Result{Status: OK, Detail: detail} }
