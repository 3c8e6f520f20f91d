package cause

import (
	"strings"
	"testing"
)

func TestWaker(t *testing.T) {
	const waking = "bpf_prog_1234_thread_woken bpf_trace_run1 __traceiter_sched_waking try_to_wake_up "
	const received = waking + "__wake_up_common __wake_up_sync_key sock_def_readable tcp_rcv_established tcp_v4_rcv " +
		"ip_rcv process_backlog __napi_poll net_rx_action handle_softirqs "
	for _, tt := range []struct {
		name, stack, want string
		inKernel, unknown bool
		next              string // the innermost frame that is left
	}{
		{name: "unpark", stack: waking + "wake_up_q futex_wake do_futex do_syscall_64", next: "futex_wake"},
		{name: "write to a pipe", stack: waking +
			"autoremove_wake_function __wake_up_common __wake_up_sync_key pipe_write vfs_write", next: "pipe_write"},
		{name: "send to the same machine", stack: received +
			"do_softirq.part.0 __local_bh_enable_ip __dev_queue_xmit tcp_sendmsg do_syscall_64",
			next: "sock_def_readable"},
		{name: "packet of the network at the end of a system call", stack: waking +
			"tcp_v4_rcv virtnet_poll __napi_poll net_rx_action handle_softirqs do_softirq __local_bh_enable_ip " +
			"tcp_sendmsg", want: Network},
		{name: "packet while a thread runs", stack: received +
			"__irq_exit_rcu sysvec_call_function_single asm_sysvec_call_function_single", want: Network},
		{name: "packet in a thread of the kernel", stack: received + "run_ksoftirqd smpboot_thread_fn kthread",
			inKernel: true, want: Network},
		{name: "sender in the kernel", stack: received + "do_softirq __local_bh_enable_ip nfsd kthread", inKernel: true,
			want: Network},
		{name: "sleep ends while a thread runs", stack: waking +
			"hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt sysvec_apic_timer_interrupt", want: Timer},
		{name: "sleep ends in a system call", stack: waking +
			"hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt gic_handle_irq vfs_read do_el0_svc", want: Timer},
		{name: "timeout", stack: waking + "process_timeout call_timer_fn run_timer_softirq __do_softirq irq_exit_rcu",
			want: Timer},
		{name: "sleep ends on an idle CPU", stack: waking +
			"hrtimer_wakeup hrtimer_interrupt sysvec_apic_timer_interrupt cpuidle_enter do_idle", inKernel: true,
			want: Timer},
		{name: "storage", stack: waking + "bio_endio blk_update_request blk_mq_end_request nvme_irq " +
			"__handle_irq_event_percpu common_interrupt", want: Disk},
		{name: "another interrupt", stack: waking + "something_irq handle_irq_event", want: Interrupt},
		{name: "journal", stack: waking + "jbd2_journal_commit_transaction kjournald2 kthread", inKernel: true,
			want: KernelThread},
		{name: "no names", stack: "[unknown] [unknown]", unknown: true},
		{name: "nothing", stack: "", unknown: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			functions := strings.Fields(tt.stack)
			by, inner, ok := Waker(tt.inKernel, func(yield func(KernelFrame) bool) {
				for _, f := range functions {
					if !yield(KernelFrameOf(f)) {
						return
					}
				}
			})
			if by != tt.want || ok == tt.unknown {
				t.Errorf("%q, %t", by, ok)
			}
			if tt.next != "" && functions[inner] != tt.next {
				t.Errorf("%s is left", functions[inner])
			}
		})
	}
}
