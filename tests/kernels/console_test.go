package main

import (
	"strings"
	"testing"
)

func TestFindTrouble(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       bool
	}{
		{"quiet boot", "[    0.412] x86/cpu: SGX disabled by BIOS.", false},
		{"a word inside a word", "[    0.5] DEBUG: initcall", false},
		{"warning", "[    2.9] WARNING: CPU: 0 PID: 1 at kernel/bpf/verifier.c:123 check+0x1/0x2", true},
		{"bug", "[    2.9] BUG: kernel NULL pointer dereference, address: 0000000000000008", true},
		{"oops", "[    2.9] Oops: 0000 [#1] PREEMPT SMP NOPTI", true},
		{"panic", "[    1.0] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000200", true},
		{"stall", "[   26.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", true},
		{"stall of one's own", "[   26.0] rcu: INFO: rcu_sched self-detected stall on CPU", true},
		{"rcu at boot", "[    0.1] rcu: Hierarchical RCU implementation.", false},
		{"lockup", "[   50.0] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [bpf.test:71]", true},
		{"hung", "[  245.0] INFO: task kworker/0:1:17 blocked for more than 120 seconds.", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(findTrouble("before\n"+tt.line+"\nafter\n")) == 1; got != tt.want {
				t.Errorf("trouble is %t, want %t: %s", got, tt.want, tt.line)
			}
		})
	}
}

func TestTail(t *testing.T) {
	if got := tail("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("got %q", got)
	}
	if got := tail("a\n", 2); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestEmulatorFault(t *testing.T) {
	const fault = `[    7.1] WARNING: CPU: 0 PID: 145 at arch/x86/kernel/traps.c:1120 exc_debug_kernel+0xca/0x160
[    7.2] CPU: 0 UID: 0 PID: 145 Comm: test Not tainted 6.12.117+deb12-cloud-amd64 #1
[    7.2] DR3: 00000000006032a0 DR6: 00000000ffff0ff0 DR7: 0000000000000600
`
	if !emulatorFault(fault) {
		t.Error("a debug exception without a reason is not seen")
	}
	for what, console := range map[string]string{
		"a breakpoint was hit": strings.Replace(fault, "ffff0ff0", "ffff0ff1", 1),
		"another warning":      strings.Replace(fault, "exc_debug_kernel", "exc_page_fault", 1),
		"nothing":              "",
	} {
		if emulatorFault(console) {
			t.Errorf("%s: taken for a fault of the emulator", what)
		}
	}
}
