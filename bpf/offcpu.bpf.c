//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Off-CPU time. A thread that leaves its CPU is noted, and when it comes back its wait becomes a record: how long it took, why the
 * thread left, and its stack, which has not changed meanwhile.
 *
 * At sched_switch the thread that leaves is still the current one, so the other's memory cannot be read. There are two places where the
 * one that came is current:
 *
 * - The tracepoint sched_exit_tp, since Linux 6.15: the thread goes on, with interrupts on and no lock.
 * - The function __perf_event_task_sched_in, which the kernel calls at each switch while any task has a perf event. User space opens one.
 *   (Others use its caller, finish_task_switch, which has to be a kprobe: compilers rename it, so the kernel's type information lacks it.)
 *
 * In the latter, and at sched_switch, the lock of a run queue is held and interrupts are off. So nobody is woken: the ring is only written
 * to, and user space comes by itself. The map is allocated in advance. The working memory is this object's own, and preemption is off.
 */
#include "observe.bpf.h"
#include "registers.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct away *export_away __attribute__((unused));
enum wait_values *export_wait_values __attribute__((unused));
enum away_state *export_away_state __attribute__((unused));
enum waker_values *export_waker_values __attribute__((unused));
enum waker_flags *export_waker_flags __attribute__((unused));

/* include/linux/sched.h */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400
#define TASK_FROZEN 0x8000

#define MAX_WAIT_FRAMES 48 /* of the kernel: most have 15 to 25 */
#define MAX_WAKER_FRAMES 64 /* of the kernel: a packet to the same machine has 50, from the sender through to the receiver */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_AWAY);
	__type(key, __u32);
	__type(value, struct away);
} threads_away SEC(".maps");

/* Waits of that many ns are recorded always, shorter ones with a probability proportional to their length; 0: nothing is recorded. */
__u32 mean_interval = 0;

/* When that began. */
__u64 observed_since = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_info {
	unsigned long long run_delay; /* ns on run queues */
};

struct cfs_rq___throttled {
	int throttle_count; /* of this group and those around it */
};

struct sched_entity___group {
	struct cfs_rq___throttled *cfs_rq;
};

struct task_struct___scheduled {
	unsigned int __state;
	int on_cpu;
	unsigned long long start_time; /* ns, CLOCK_MONOTONIC */
	struct sched_info sched_info;
	struct sched_entity___group se;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs___user {
	unsigned long ip, sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___user {
	__u64 pc, sp;
};
#endif

#pragma clang attribute pop

static __always_inline __u64 run_delay(struct task_struct *task)
{
	struct task_struct___scheduled *t = (void *)task;

	return bpf_core_field_exists(t->sched_info) ? t->sched_info.run_delay : 0;
}

/* Whether the task's cgroup, or one around it, has used up its CPU quota on this CPU. */
static __always_inline bool throttled(struct task_struct *task)
{
	struct task_struct___scheduled *t = (void *)task;
	struct cfs_rq___throttled *cfs;

	if (!bpf_core_field_exists(t->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq___throttled, throttle_count))
		return false;
	cfs = t->se.cfs_rq;
	return cfs && cfs->throttle_count > 0;
}

static __always_inline __u64 max_of(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u32 state_of(struct task_struct *task, bool runnable, unsigned int state)
{
	if (runnable)
		return throttled(task) ? AWAY_THROTTLED : AWAY_PREEMPTED;
	if (state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN))
		return AWAY_STOPPED;
	if ((state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD))
		return AWAY_DISK;
	return AWAY_BLOCKED;
}

static __always_inline void fill_away(struct away *a, struct task_struct *task, __u32 state)
{
	struct pt_regs___user *regs = (void *)bpf_task_pt_regs(task);
	struct task_struct *leader = task->group_leader;

	a->born = task->start_boottime;
	a->start = leader->start_boottime;
	a->delay = run_delay(task);
#if defined(__TARGET_ARCH_x86)
	a->pc = regs->ip;
#elif defined(__TARGET_ARCH_arm64)
	a->pc = regs->pc;
#endif
	a->sp = regs->sp;
	a->pid = task->tgid;
	a->exec = (__u32)leader->self_exec_id;
	a->state = state;
}

/* A thread leaves its CPU; it is still the current one. A thread that ends leaves nothing behind. */
SEC("tp_btf/sched_switch")
int BPF_PROG(thread_leaves, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	__u32 tid = prev->pid;
	struct away *a;
	__u64 now;

	if (!tid || (prev->flags & PF_KTHREAD))
		return 0;
	if (prev_state & TASK_DEAD) { /* its process may have been taken from the chosen ones before */
		bpf_map_delete_elem(&threads_away, &tid);
		return 0;
	}
	if (!mean_interval || !chosen(prev->tgid))
		return 0;
	a = bpf_map_lookup_elem(&threads_away, &tid);
	if (a && a->born != prev->start_boottime) { /* the end of another thread was not seen */
		a->came = 0;
		a->on = 0;
	}
	if (!a) {
		struct away fresh = {};

		bpf_probe_read_kernel(fresh.comm, sizeof(fresh.comm), prev->comm);
		bpf_map_update_elem(&threads_away, &tid, &fresh, BPF_NOEXIST); /* or the iterator has noted it meanwhile */
		a = bpf_map_lookup_elem(&threads_away, &tid);
		if (!a) {
			count(WAITS_REFUSED, 1);
			return 0;
		}
	}
	fill_away(a, prev, state_of(prev, preempt || !prev_state, prev_state));
	now = bpf_ktime_get_ns();
	if (!a->came) /* it was made since, and has not come back before */
		a->came = max_of(((struct task_struct___scheduled *)prev)->start_time, observed_since);
	if (now > a->came)
		a->on += now - a->came;
	a->woken = 0;
	a->since = now;
	return 0;
}

/* Whether a wait of that length is drawn for a record. */
static __always_inline bool draw_wait(__u64 length, __u32 mean)
{
	return length >= mean || (__u64)bpf_get_prandom_u32() * mean >> 32 < length;
}

/* Appends the kernel's frames behind the user's. */
static __always_inline void append_kernel(struct scratch *s, void *ctx, const __u32 most)
{
	struct sample *r = &s->sample;
	__u32 n = r->user_frames;
	long bytes;

	if (n > MAX_USER_FRAMES)
		return;
	bytes = bpf_get_stack(ctx, &r->frames[n], most * 8, 0);
	if (bytes > 0)
		r->kernel_frames = bytes / 8;
}

/*
 * Writes what was noted, with so many bytes of text, and the current thread's stack, of which most frames are the kernel's. Ends the
 * observation. False if the record was dropped.
 */
static __always_inline bool write_stack(struct scratch *s, void *ctx, const __u32 most, const __u32 text)
{
	struct sample *r = &s->sample;
	__u64 size, n;
	bool lost;

	begin_record(s);
	append_kernel(s, ctx, most);
	n = (__u64)r->user_frames + r->kernel_frames;
	asm volatile("" : "+r"(n)); /* what is compared is what is used */
	if (n > MAX_USER_FRAMES + most)
		n = MAX_USER_FRAMES + most;
	bpf_probe_read_kernel((void *)s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) + 8 * n,
			      sizeof(struct observation) + text, &s->seen);
	size = offsetof(struct sample, frames) + 8 * n + sizeof(struct observation) + text;
	lost = bpf_ringbuf_output(&events, r, size, BPF_RB_NO_WAKEUP);
	count(lost ? OBSERVATIONS_DROPPED_RING_FULL : OBSERVATIONS_DELIVERED, 1);
	end_observation(s);
	return !lost;
}

/*
 * Draws whether the wait of a thread is recorded that is woken now, and notes that for its return. Its length is drawn once: the same number
 * is compared with the length until now, for the record of the waker, and at the return with that of the whole wait.
 */
static __always_inline bool draw_waking(struct away *a, __u64 since, __u64 now, __u32 mean)
{
	a->mean = mean;
	a->least = (__u64)bpf_get_prandom_u32() * mean >> 32;
	a->woken = now;
	return now > since && now - since > a->least;
}

/* A record of a waker that has the kernel's frames alone, as struct sample and struct observation have them. */
struct interrupting_waker {
	struct event_header header;
	__u16 user_frames, kernel_frames;
	__u8 end, flags;
	__u16 cpu;
	__u32 class_epoch, attachment;
	__u8 comm[16];
	__u64 frames[MAX_WAKER_FRAMES]; /* 0 behind the last one */
	struct observation o;
};

_Static_assert(offsetof(struct interrupting_waker, frames) == offsetof(struct sample, frames), "laid out as struct sample");

/*
 * A thread is woken while another program of this object runs on this CPU. So it is an interrupt that wakes it, and the current thread has
 * nothing to do with that. The working memory is in use.
 */
static __always_inline void write_interrupting(void *ctx, __u32 tid, __u64 since, __u64 now)
{
	struct interrupting_waker *r;

	count(OBSERVATIONS_ATTEMPTED, 1);
	r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);
	if (!r) {
		count(OBSERVATIONS_DROPPED_RING_FULL, 1);
		count(WAKERS_LOST, 1);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	fill_header(&r->header, (struct task_struct *)bpf_get_current_task_btf(), EVENT_OBSERVED, now);
	r->kernel_frames = MAX_WAKER_FRAMES;
	r->cpu = bpf_get_smp_processor_id();
	bpf_get_stack(ctx, r->frames, sizeof(r->frames), 0);
	r->o.what = OBSERVED_WAKER;
	r->o.count = WAKER_VALUES;
	r->o.flags = WAKER_KERNEL;
	r->o.probe = PROBE_WAIT;
	r->o.every = 1;
	r->o.values[WAKER_TID] = tid;
	r->o.values[WAKER_SINCE] = since;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	count(OBSERVATIONS_DELIVERED, 1);
}

/* Who wakes a thread becomes a record, which precedes that of the wait. */
static __always_inline void write_waker(void *ctx, __u32 tid, __u64 since, __u64 now)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf(), *leader = task->group_leader;
	struct scratch *s;

	count(WAKERS_DRAWN, 1);
	s = this_scratch();
	if (s && s->watch.claimed) {
		write_interrupting(ctx, tid, since, now);
		return;
	}
	s = begin_observation(OBSERVED_WAKER, PROBE_WAIT, 1);
	if (!s) {
		count(WAKERS_LOST, 1);
		return;
	}
	s->watch.begin = now;
	s->seen.o.count = WAKER_VALUES;
	s->seen.o.values[WAKER_TID] = tid;
	s->seen.o.values[WAKER_SINCE] = since;
	s->seen.o.text_len = sizeof(task->comm);
	bpf_probe_read_kernel(s->seen.text, sizeof(task->comm), leader->comm);
	if (!task->pid || (task->flags & PF_KTHREAD))
		s->seen.o.flags = WAKER_KERNEL;
	else if (chosen(task->tgid))
		s->seen.o.flags = WAKER_CHOSEN;
	if (s->seen.o.flags != WAKER_CHOSEN || only_in_kernel(task) || !read_registers(s, 0, task, true))
		s->watch.bare = 1;
	if (!write_stack(s, ctx, MAX_WAKER_FRAMES, sizeof(task->comm)))
		count(WAKERS_LOST, 1);
}

/*
 * A thread is woken, by the current one or by an interrupt. It is loaded only if wakers are recorded. The thread's pi_lock is held and
 * interrupts are off; the thread does not go on before.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(thread_woken, struct task_struct *task)
{
	__u32 tid = task->pid, mean = mean_interval;
	__u64 since, now;
	struct away *a;

	if (!tid || !mean || (task->flags & PF_KTHREAD) || !chosen(task->tgid))
		return 0;
	a = bpf_map_lookup_elem(&threads_away, &tid);
	if (!a)
		return 0;
	since = a->since;
	if (!since || a->born != task->start_boottime || a->state == AWAY_PREEMPTED || a->state == AWAY_THROTTLED)
		return 0;
	count(WAKINGS_SEEN, 1);
	now = bpf_ktime_get_ns();
	if (draw_waking(a, since, now, mean))
		write_waker(ctx, tid, since, now);
	return 0;
}

/* A thread has come to a CPU, and is the current one. */
static __always_inline void note_return(void *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 tid = task->pid, mean = mean_interval;
	__u64 since, now, length, worth, woken;
	struct scratch *s;
	struct away *a;
	bool recorded;

	if (!tid || !mean || (task->flags & PF_KTHREAD) || !chosen(task->tgid))
		return;
	a = bpf_map_lookup_elem(&threads_away, &tid);
	if (!a)
		return;
	since = a->since;
	a->since = 0;
	if (!since || a->born != task->start_boottime)
		return;
	count(WAITS_SEEN, 1);
	now = bpf_ktime_get_ns();
	a->came = now;
	length = now - since;
	woken = a->woken;
	if (woken)
		mean = a->mean;
	recorded = woken ? length > a->least : draw_wait(length, mean);
	if (!recorded) {
		count(WAITS_THINNED, 1);
		return;
	}
	worth = length > mean ? length : mean;
	count(NS_WAITS_DRAWN, worth);
	s = begin_observation(OBSERVED_WAIT, PROBE_WAIT, 1);
	if (!s) {
		count(NS_WAITS_LOST, worth);
		return;
	}
	s->watch.begin = now;
	s->seen.o.flags = a->state;
	s->seen.o.count = WAIT_VALUES;
	s->seen.o.values[WAIT_SINCE] = since;
	s->seen.o.values[WAIT_DELAY] = run_delay(task) - a->delay;
	s->seen.o.values[WAIT_MEAN] = mean;
	s->seen.o.values[WAIT_PC] = a->pc;
	s->seen.o.values[WAIT_SP] = a->sp;
	s->seen.o.values[WAIT_WOKEN] = woken;
	s->seen.o.values[WAIT_LEAST] = a->least;
	if (only_in_kernel(task) || !read_registers(s, 0, task, true))
		s->watch.bare = 1;
	if (!write_stack(s, ctx, MAX_WAIT_FRAMES, 0))
		count(NS_WAITS_LOST, worth);
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

struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

/* Notes threads when observation begins: since then, as nothing is known of the time before. */
SEC("iter/task")
int note_waiting(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_struct___scheduled *t = (void *)task;
	struct away fresh = {}, *a;
	unsigned int state;
	__u32 tid;

	if (!task || (task->flags & PF_KTHREAD) || !chosen(task->tgid))
		return 0;
	tid = task->pid;
	state = t->__state;
	if (!tid || (state & TASK_DEAD))
		return 0;
	fill_away(&fresh, task, state_of(task, !state, state));
	bpf_probe_read_kernel(fresh.comm, sizeof(fresh.comm), task->comm);
	fresh.came = bpf_ktime_get_ns();
	if (!t->on_cpu)
		fresh.since = fresh.came;
	if (bpf_map_update_elem(&threads_away, &tid, &fresh, BPF_NOEXIST))
		return 0;
	a = bpf_map_lookup_elem(&threads_away, &tid);
	if (a && t->on_cpu) /* it came back before it was noted */
		a->since = 0;
	return 0;
}
