/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Off-CPU time. A thread that leaves its CPU is noted, and when it comes back its wait becomes a
 * record: how long it took, why the thread left, and its stack, which has not changed meanwhile.
 *
 * One program, at sched_switch, sees who leaves the CPU and who comes to it: it takes the time once
 * for both, and draws whether the wait of the one that comes is recorded. At that moment the one
 * that leaves is still the current thread, so the other's memory cannot be read. There are two
 * places where the one that came is current:
 *
 * - The tracepoint sched_exit_tp, since Linux 6.15: the thread goes on, with interrupts on and no
 *   lock.
 * - The function __perf_event_task_sched_in, which the kernel calls at each switch while any task
 *   has a perf event. User space opens one. (Others use its caller, finish_task_switch, which has
 *   to be a kprobe: compilers rename it, so the kernel's type information lacks it.)
 *
 * In the latter, and at sched_switch, the lock of a run queue is held and interrupts are off. So
 * nobody is woken: the ring is only written to, and user space comes by itself. The working memory
 * is this object's own, and preemption is off.
 */
#include "wait/waitend.bpf.h"
#include "wait/frequentwait.bpf.h"
#include "kernel/tasks.bpf.h"
#include "wait/waker.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct off_cpu_thread *export_off_cpu_thread __attribute__((unused));
enum wait_values *export_wait_values __attribute__((unused));
enum off_cpu_state *export_off_cpu_state __attribute__((unused));
enum waker_values *export_waker_values __attribute__((unused));
enum waker_flags *export_waker_flags __attribute__((unused));

/* A thread is made. It does not run yet. Its process is not yet chosen if it is new. */
SEC("tp_btf/task_newtask")
int BPF_PROG(thread_begins, struct task_struct *task)
{
	if (!mean_interval || (task->flags & PF_KTHREAD) || !chosen(bpf_get_current_pid_tgid() >> 32))
		return 0;
	follow(task, 0, 0);
	return 0;
}

/* A CPU goes from one thread to another. The first is still the current one. */
SEC("tp_btf/sched_switch")
int BPF_PROG(thread_switches, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct followed *leaves = 0, *comes = 0;
	struct frequent_waiter *h;
	__u64 now, since;
	__u16 every = 1;

	if (!mean_interval)
		return 0;
	h = frequent_waiter(prev->pid);
	if (h && !(prev_state & TASK_DEAD))
		every = frequent_waiter_leaves(h);
	if (every)
		leaves = followed(prev);
	else
		count_switch(WAITS_SKIPPED);
	h = frequent_waiter(next->pid);
	if (!h || h->noted)
		comes = followed(next);
	if (!leaves && !comes)
		return 0;
	now = bpf_ktime_get_ns();
	if (leaves)
		thread_leaves(leaves, prev, preempt || !prev_state, prev_state, now, every);
	if (comes) {
		since = thread_comes(comes);
		if (since) {
			count_wait(comes, next->pid);
			draw_return(comes, next, since, now);
		}
	}
	return 0;
}

/*
 * A thread is woken, by the current one or by an interrupt. It is loaded only if wakers are
 * recorded. The thread's pi_lock is held and interrupts are off; the thread does not go on before.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(thread_woken, struct task_struct *task)
{
	struct followed *f;
	__u64 since, now;

	if (!mean_interval)
		return 0;
	f = followed(task);
	if (!f)
		return 0;
	since = f->since;
	if (!since || f->state == OFF_CPU_PREEMPTED || f->state == OFF_CPU_THROTTLED)
		return 0;
	if (has_cpu(f, task))
		return 0;
	count(WAKINGS_SEEN, 1);
	now = bpf_ktime_get_ns();
	if (draw_waking(f, since, now, mean_of(task)))
		write_waker(ctx, task->pid, since, now);
	return 0;
}

SEC("tp_btf/sched_exit_tp")
int thread_goes_on(void *ctx)
{
	note_return(ctx);
	return 0;
}

SEC("fentry/__perf_event_task_sched_in")
int thread_switched_in(void *ctx)
{
	note_return(ctx);
	return 0;
}

/*
 * Writes what is known of all threads that are to be followed. Before the first recording none is:
 * notes of recording 0 are those of threads that have ended.
 */
SEC("iter/task")
int each_thread(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *leader;
	struct pt_regs___user *regs;
	struct followed *f;
	struct off_cpu_thread a = {};
	unsigned int state;

	if (!task || !recording || (task->flags & PF_KTHREAD) || !chosen(task->tgid))
		return 0;
	state = ((struct task_struct___scheduled *)task)->__state;
	if (state & TASK_DEAD)
		return 0;
	f = followed_from_now(task, state);
	if (!f)
		return 0;
	regs = (void *)bpf_task_pt_regs(task);
	leader = task->group_leader;
	a.since = has_cpu(f, task) ? 0 : f->since;
	a.on = ran(task) - f->ran;
	a.state = f->state;
	a.every = f->every;
	a.born = task->start_boottime;
	a.start = leader->start_boottime;
	a.exec = (__u32)leader->self_exec_id;
	a.pc = user_pc(regs);
	a.sp = regs->sp;
	a.pid = task->tgid;
	a.tid = task->pid;
	bpf_probe_read_kernel(a.comm, sizeof(a.comm), task->comm);
	bpf_seq_write(ctx->meta->seq, &a, sizeof(a));
	return 0;
}
