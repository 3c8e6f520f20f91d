//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Off-CPU time. A thread that leaves its CPU is noted, and when it comes back its wait becomes a record: how long it took, why the
 * thread left, and its stack, which has not changed meanwhile.
 *
 * One program, at sched_switch, sees who leaves the CPU and who comes to it: it takes the time once for both, and draws whether the wait of
 * the one that comes is recorded. At that moment the one that leaves is still the current thread, so the other's memory cannot be read. There
 * are two places where the one that came is current:
 *
 * - The tracepoint sched_exit_tp, since Linux 6.15: the thread goes on, with interrupts on and no lock.
 * - The function __perf_event_task_sched_in, which the kernel calls at each switch while any task has a perf event. User space opens one.
 *   (Others use its caller, finish_task_switch, which has to be a kprobe: compilers rename it, so the kernel's type information lacks it.)
 *
 * In the latter, and at sched_switch, the lock of a run queue is held and interrupts are off. So nobody is woken: the ring is only written
 * to, and user space comes by itself. The working memory is this object's own, and preemption is off.
 *
 * What is noted of a thread is in its task storage, which ends with it. Kernels before 6.4 cannot allocate that with the lock of a run queue
 * held, so threads get it when they are made, or from the iterator. Threads without it cost a comparison.
 */
#include "observe.bpf.h"
#include "offcpu.h"
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

/* What is noted of a thread. With the kernel's pointer before it, it has one cache line. */
struct followed {
	__u64 recording; /* observed_since of the one that this is of: other recordings are over */
	__u64 since;	 /* as in struct away */
	__s64 on;	 /* the same */
	__u64 delay;	 /* ns that it had waited on run queues in its life when it left */
	__u64 woken;	 /* with wakers: when this wait ended, 0 if it has not or that was not seen */
	__u32 least;	 /* ns, with woken: the wait is recorded if it is longer */
	__u32 mean;	 /* ns, with woken: the mean interval of which that was drawn */
	__u32 state;	 /* enum away_state */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct followed);
} followed_threads SEC(".maps");

/* A wait that was drawn for a record, by a thread that is about to go on on this CPU. */
struct drawn_wait {
	__u32 tid;  /* 0: there is none */
	__u32 mean; /* mean_interval when it was drawn */
	__u64 since, until;
	__u64 delay, woken; /* as in struct followed */
	__u32 least, state;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drawn_wait);
} drawn_waits SEC(".maps");

/* Threads that are followed. */
__u32 followed_count = 0;

/* Waits of that many ns are recorded always, shorter ones with a probability proportional to their length; 0: nothing is recorded. */
__u32 mean_interval = 0;

/* When that began: CLOCK_MONOTONIC. */
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
	void *bpf_storage; /* 0 if no program has any */
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

static __always_inline __u64 user_pc(struct pt_regs___user *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->ip;
#elif defined(__TARGET_ARCH_arm64)
	return regs->pc;
#endif
}

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

/* The thread's notes of this recording; 0 if it is not followed. */
static __always_inline struct followed *followed(struct task_struct *task)
{
	struct followed *f;

	if (!((struct task_struct___scheduled *)task)->bpf_storage)
		return 0;
	f = bpf_task_storage_get(&followed_threads, task, 0, 0);
	return f && f->recording == observed_since ? f : 0;
}

/* Makes notes of a thread, unless there are. */
static __always_inline struct followed *follow(struct task_struct *task, struct followed *fresh)
{
	struct followed *f;

	if (followed_count < MAX_FOLLOWED_THREADS) {
		__sync_fetch_and_add(&followed_count, 1);
		f = bpf_task_storage_get(&followed_threads, task, fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (f)
			return f;
		__sync_fetch_and_add(&followed_count, -1);
	}
	count(WAITS_REFUSED, 1);
	return 0;
}

/* A thread is made. It does not run yet. Its process is not yet chosen if it is new. */
SEC("tp_btf/task_newtask")
int BPF_PROG(thread_begins, struct task_struct *task)
{
	struct followed fresh = {};

	if (!mean_interval || (task->flags & PF_KTHREAD) || !chosen(bpf_get_current_pid_tgid() >> 32))
		return 0;
	fresh.recording = observed_since;
	follow(task, &fresh);
	return 0;
}

/* The program runs with interrupts off: nothing else on this CPU counts the same. */
static __always_inline void count_switch(__u32 which)
{
	__u64 *v = bpf_map_lookup_elem(&counters, &which);

	if (v)
		++*v;
}

/* A thread that ends leaves nothing behind. */
static __always_inline void thread_leaves(struct followed *f, struct task_struct *task, bool runnable, unsigned int state, __u64 now)
{
	if (state & TASK_DEAD) {
		__sync_fetch_and_add(&followed_count, -1);
		return;
	}
	f->state = state_of(task, runnable, state);
	f->delay = run_delay(task);
	if (f->on < 0)
		f->on += now;
	f->woken = 0;
	f->since = now;
}

/* Whether a wait of that length is drawn for a record. */
static __always_inline bool draw_wait(__u64 length, __u32 mean)
{
	return length >= mean || (__u64)bpf_get_prandom_u32() * mean >> 32 < length;
}

/* What a wait that was drawn stands for, ns. */
static __always_inline __u64 worth_of(struct drawn_wait *w)
{
	return max_of(w->until - w->since, w->mean);
}

/* The thread did not go on where the other program sees it. */
static __always_inline void lose_wait(struct drawn_wait *w)
{
	w->tid = 0;
	count(NS_WAITS_DRAWN, worth_of(w));
	count(NS_WAITS_LOST, worth_of(w));
	count(OBSERVATIONS_ATTEMPTED, 1);
	count(OBSERVATIONS_DROPPED_BUSY, 1);
}

static __always_inline void thread_comes(struct followed *f, struct task_struct *task, __u64 now)
{
	__u32 mean = mean_interval, zero = 0;
	__u64 since = f->since, woken = f->woken;
	struct drawn_wait *w;
	bool recorded;

	f->since = 0;
	if (f->on >= 0)
		f->on -= now;
	if (!since)
		return;
	w = bpf_map_lookup_elem(&drawn_waits, &zero);
	if (!w)
		return;
	count_switch(WAITS_SEEN);
	if (woken)
		mean = f->mean;
	recorded = woken ? now - since > f->least : draw_wait(now - since, mean);
	if (!recorded) {
		count_switch(WAITS_THINNED);
		return;
	}
	if (w->tid)
		lose_wait(w);
	w->tid = task->pid;
	w->mean = mean;
	w->since = since;
	w->until = now;
	w->delay = f->delay;
	w->woken = woken;
	w->least = f->least;
	w->state = f->state;
}

/* A CPU goes from one thread to another. The first is still the current one. */
SEC("tp_btf/sched_switch")
int BPF_PROG(thread_switches, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct followed *leaves, *comes;
	__u64 now;

	if (!mean_interval)
		return 0;
	leaves = followed(prev);
	comes = followed(next);
	if (!leaves && !comes)
		return 0;
	now = bpf_ktime_get_ns();
	if (leaves)
		thread_leaves(leaves, prev, preempt || !prev_state, prev_state, now);
	if (comes)
		thread_comes(comes, next, now);
	return 0;
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
 * Writes what was noted at that time, with so many bytes of text, and the current thread's stack, of which most frames are the kernel's. Ends the
 * observation. False if the record was dropped.
 */
static __always_inline bool write_stack(struct scratch *s, void *ctx, __u64 time, const __u32 most, const __u32 text)
{
	struct sample *r = &s->sample;
	__u64 size, n;
	bool lost;

	begin_record(s);
	r->header.time = time;
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
static __always_inline bool draw_waking(struct followed *f, __u64 since, __u64 now, __u32 mean)
{
	f->mean = mean;
	f->least = (__u64)bpf_get_prandom_u32() * mean >> 32;
	f->woken = now;
	return now > since && now - since > f->least;
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
	if (!write_stack(s, ctx, now, MAX_WAKER_FRAMES, sizeof(task->comm)))
		count(WAKERS_LOST, 1);
}

/*
 * A thread is woken, by the current one or by an interrupt. It is loaded only if wakers are recorded. The thread's pi_lock is held and
 * interrupts are off; the thread does not go on before.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(thread_woken, struct task_struct *task)
{
	__u32 mean = mean_interval;
	struct followed *f;
	__u64 since, now;

	if (!mean)
		return 0;
	f = followed(task);
	if (!f)
		return 0;
	since = f->since;
	if (!since || f->state == AWAY_PREEMPTED || f->state == AWAY_THROTTLED)
		return 0;
	count(WAKINGS_SEEN, 1);
	now = bpf_ktime_get_ns();
	if (draw_waking(f, since, now, mean))
		write_waker(ctx, task->pid, since, now);
	return 0;
}

/* A thread has come to this CPU, and is the current one. */
static __always_inline void note_return(void *ctx)
{
	__u32 zero = 0;
	struct drawn_wait *w = bpf_map_lookup_elem(&drawn_waits, &zero);
	struct pt_regs___user *regs;
	struct task_struct *task;
	struct scratch *s;

	if (!w || !w->tid)
		return;
	task = (struct task_struct *)bpf_get_current_task_btf();
	if (w->tid != task->pid) {
		lose_wait(w);
		return;
	}
	w->tid = 0;
	count(NS_WAITS_DRAWN, worth_of(w));
	s = begin_observation(OBSERVED_WAIT, PROBE_WAIT, 1);
	if (!s) {
		count(NS_WAITS_LOST, worth_of(w));
		return;
	}
	regs = (void *)bpf_task_pt_regs(task);
	s->seen.o.flags = w->state;
	s->seen.o.count = WAIT_VALUES;
	s->seen.o.values[WAIT_SINCE] = w->since;
	s->seen.o.values[WAIT_DELAY] = run_delay(task) - w->delay;
	s->seen.o.values[WAIT_MEAN] = w->mean;
	s->seen.o.values[WAIT_PC] = user_pc(regs);
	s->seen.o.values[WAIT_SP] = regs->sp;
	s->seen.o.values[WAIT_WOKEN] = w->woken;
	s->seen.o.values[WAIT_LEAST] = w->least;
	if (only_in_kernel(task) || !read_registers(s, 0, task, true))
		s->watch.bare = 1;
	if (!write_stack(s, ctx, w->until, MAX_WAIT_FRAMES, 0))
		count(NS_WAITS_LOST, worth_of(w));
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

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

/* The thread's notes. One that is not followed is from now on: nothing is known of the time before. */
static __always_inline struct followed *followed_from_now(struct task_struct *task, unsigned int state)
{
	struct task_struct___scheduled *t = (void *)task;
	struct followed fresh = {}, *f = bpf_task_storage_get(&followed_threads, task, 0, 0);
	__u64 now;

	if (f && f->recording == observed_since)
		return f;
	if (f)
		bpf_task_storage_delete(&followed_threads, task);
	now = bpf_ktime_get_ns();
	fresh.recording = observed_since;
	if (t->on_cpu)
		fresh.on = -now;
	else
		fresh.since = now;
	fresh.state = state_of(task, !state, state);
	fresh.delay = run_delay(task);
	f = follow(task, &fresh);
	if (f && fresh.since && t->on_cpu && f->since == fresh.since) { /* it came back before that was noted */
		f->since = 0;
		f->on = -now;
	} else if (f && !fresh.since && !t->on_cpu && !f->since && f->on == fresh.on) { /* or left */
		f->since = now;
		f->on = 0;
	}
	return f;
}

/* Writes what is known of all threads that are to be followed. */
SEC("iter/task")
int each_thread(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *leader;
	struct pt_regs___user *regs;
	struct followed *f;
	struct away a = {};
	unsigned int state;

	if (!task || (task->flags & PF_KTHREAD) || !chosen(task->tgid))
		return 0;
	state = ((struct task_struct___scheduled *)task)->__state;
	if (state & TASK_DEAD)
		return 0;
	f = followed_from_now(task, state);
	if (!f)
		return 0;
	regs = (void *)bpf_task_pt_regs(task);
	leader = task->group_leader;
	a.since = f->since;
	a.on = f->on;
	a.state = f->state;
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
