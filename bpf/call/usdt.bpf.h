/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Calls as seen from a USDT probe on the way into every function of an interpreter:
 * php:function__entry, python:function__entry, ruby:method__entry. The probe is passed while its
 * semaphore is not 0, which the kernel sees to while a uprobe is attached there. Attaching takes
 * user space milliseconds, so it is done for windows: a tick in a guest asks for one, hits are
 * sampled until the burst has its samples, and then user space is asked to take the uprobe away.
 *
 * Nothing here writes into a guest. What is read was written by one: strings are cut, and addresses
 * only read from.
 */
#pragma once

#include "record/call.h"
#include "kernel/maps.bpf.h"
#include "call/php.bpf.h"

#define MAX_USDT_GUESTS 4096 /* processes: a large php-fpm pool; 168 bytes each */
#define MAX_USDT_PROBES 64   /* sites in all builds of interpreters; builds seen have one each */

/* A tick's request that nobody has answered for so long is forgotten. */
#define USDT_BURST_NS 1000000000

/* How a guest's calls are read. */
enum usdt_dialect {
	USDT_ARGUMENTS = 0, /* the callee from the probe's arguments; who called is not known */
	USDT_PHP,	    /* the callee from the probe's arguments, the caller from PHP's frames */
};

/*
 * One site of the probe in one build of an interpreter. Arguments that it does not have are the
 * constant 0.
 */
struct usdt_probe {
	struct operand name, file, class_name;
	__u32 filename, opcodes; /* USDT_PHP: in zend_op_array, bytes */
	__u32 dialect;		 /* enum usdt_dialect */
	__u32 language;		 /* named_call.language */
};

enum usdt_mode {
	USDT_BURSTS = 0,
	USDT_EXACT, /* every call of PHP is counted in usdt_edges, in a window that stays open */
};

/*
 * One process. Its own thread and ticks that interrupt it write here; user space adds and takes
 * whole values.
 */
struct usdt_guest {
	__u64 start_ticks; /* event_header.start in 10 ms: guards against a reused pid */
	__u64 executing;   /* USDT_PHP: address of executor_globals.current_execute_data */
	__u32 mode;	   /* enum usdt_mode */

	__u32 left;   /* samples until the burst's end, 0: there is no burst */
	__u32 skip;   /* calls until the next sample, that one included */
	__u32 tid;    /* whose burst it is: the thread of its first hit; 0 before that */
	__u64 burst;  /* names it: the time of the tick that asked for it */
	__u32 ticks, gaps, least; /* so far: see struct named_call */
	__u32 missed; /* ticks between the end of a burst and that of its window: the next burst answers for them */
	__u64 spent;
	__u64 left_at;	/* when the program left its latest hit, 0 before the first */
	__u64 switches; /* of the thread then */

	__u64 hits;	  /* executions of the probe */
	__u64 refused;	  /* of them, those beyond a burst: while the probe was being taken away */
	__u64 mismatched; /* of them, those where PHP's structures are not as usdt_probe says */
	__u64 lost;	  /* calls that usdt_edges had no room for */
	__u64 sampled;
	__u64 bursts;
	__u64 hit_ns;    /* in the probe's program, where it was not preempted */
	__u64 sample_ns; /* of that, for calls that are samples */
	__u64 tick_ns;   /* in the tick's */
};

enum usdt_action {
	USDT_OPEN = 1, /* a tick found the guest running: attach */
	USDT_FULL,     /* the burst has its samples: detach */
};

/* What the kernel side asks of user space. */
struct usdt_notice {
	__u64 start_ticks;
	__u64 burst;
	__u32 pid;
	__u32 action; /* enum usdt_action */
};

/* How much to sample, from the next tick on. */
struct usdt_rate {
	__u32 stride;  /* at least 1 */
	__u32 samples; /* 0: none */
};

/*
 * An edge of the exact call graph. Code is identified by the address of its opcodes, which closures
 * share.
 */
struct usdt_site {
	__u64 callee, caller; /* opcodes; the caller is 0 if there is none */
	__u32 pid;
	__u32 line; /* of the call, in the caller's file */
};

/* How often, and between whom. The header of names is not filled in. */
struct usdt_edge {
	__u64 calls;
	struct named_call names;
};

/* key: the attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_USDT_PROBES);
	__type(key, __u32);
	__type(value, struct usdt_probe);
} usdt_probes SEC(".maps");

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_USDT_GUESTS);
	__type(key, __u32);
	__type(value, struct usdt_guest);
} usdt_guests SEC(".maps");

/* key: pid; value: the latest burst whose window user space has closed, or did not open */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_USDT_GUESTS);
	__type(key, __u32);
	__type(value, __u64);
} usdt_closed SEC(".maps");

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct usdt_rate);
} usdt_rates SEC(".maps");

/* 120 notices: the reader is woken by each one. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} usdt_notices SEC(".maps");

/* Takes memory for the edges that there are: 15 MB when full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct usdt_site);
	__type(value, struct usdt_edge);
} usdt_edges SEC(".maps");

static const struct usdt_edge usdt_no_calls;

/*
 * What a thread writes before it sends it: it may be preempted meanwhile, and a ring is held up by
 * a record that is not whole.
 */
struct usdt_draft {
	struct named_call call;
	struct usdt_notice notice;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct usdt_draft);
} usdt_drafts SEC(".maps");

static __always_inline struct usdt_draft *usdt_draft(struct task_struct *task)
{
	return bpf_task_storage_get(&usdt_drafts, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Asks for something, by way of n. Returns false if there was no room to. */
static __always_inline bool usdt_ask(struct usdt_notice *n, __u32 pid, struct usdt_guest *g, __u32 action)
{
	n->start_ticks = g->start_ticks;
	n->burst = g->burst;
	n->pid = pid;
	n->action = action;
	return !bpf_ringbuf_output(&usdt_notices, n, sizeof(*n), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void usdt_string(__u8 *to, __u32 size, __u64 from)
{
	if (!from || bpf_probe_read_user_str(to, size, (void *)from) < 0)
		to[0] = 0;
}

/* Names the call that the probe stopped in. */
static __noinline void usdt_names(struct named_call *c, struct task_struct *task, const struct usdt_probe *probe,
				  const struct php_caller *caller)
{
	__u64 scope;

	c->caller_line = caller->line;
	c->engine = ENGINE_USDT;
	c->caller_unknown = probe->dialect != USDT_PHP;
	c->language = probe->language;
	c->pad = 0;
	usdt_string(c->callee_name, sizeof(c->callee_name), argument(task, &probe->name));
	usdt_string(c->callee_class, sizeof(c->callee_class), argument(task, &probe->class_name));
	usdt_string(c->callee_file, sizeof(c->callee_file), argument(task, &probe->file));
	c->caller_name[0] = c->caller_class[0] = c->caller_file[0] = 0;
	if (!caller->func)
		return;
	usdt_string(c->caller_name, sizeof(c->caller_name), php_characters(caller->func + FUNCTION_NAME));
	usdt_string(c->caller_file, sizeof(c->caller_file), php_characters(caller->func + probe->filename));
	scope = php_pointer(caller->func + FUNCTION_SCOPE);
	if (scope)
		usdt_string(c->caller_class, sizeof(c->caller_class), php_characters(scope + CLASS_NAME));
}

/*
 * The function of PHP that is being entered, if its structures are where the probe says: the
 * probe's arguments point into the very strings that are found by way of them. Else 0, and nothing
 * is reported that might be wrong.
 */
static __noinline __u64 php_entered(struct task_struct *task, const struct usdt_probe *probe, __u64 frame)
{
	__u64 func = php_pointer(frame + EXECUTE_DATA_FUNC), name;

	if (!func || !php_user_code(func))
		return 0;
	name = php_characters(func + FUNCTION_NAME); /* none: an included file's own code */
	if (name && name != argument(task, &probe->name))
		return 0;
	if (php_characters(func + probe->filename) != argument(task, &probe->file))
		return 0;
	return func;
}

/*
 * Adds the time since the latest hit of the burst to what it spent, if the thread ran all the
 * while.
 */
static __always_inline void usdt_gap(struct usdt_guest *g, struct task_struct *task, __u64 now)
{
	__u64 gap = now - g->left_at;

	if (!g->left_at || gap > USDT_BURST_NS || switches_of(task) != g->switches)
		return;
	g->gaps++;
	g->spent += gap;
	if (gap < g->least)
		g->least = gap;
}

static __always_inline void usdt_leave(struct usdt_guest *g, struct task_struct *task, __u64 now)
{
	g->left_at = now;
	g->switches = switches_of(task);
}

/* Sends a sampled call. */
static __noinline void usdt_sample(struct usdt_guest *g, struct task_struct *task, const struct usdt_probe *probe,
				   const struct php_caller *caller, __u64 now)
{
	struct usdt_draft *draft = usdt_draft(task);
	struct named_call *c;

	count(CALLS_ATTEMPTED, 1);
	__sync_fetch_and_add(&g->sampled, 1);
	if (!draft) {
		count(CALLS_DROPPED_NO_DRAFT, 1);
		return;
	}
	c = &draft->call;
	fill_header(&c->header, task, EVENT_NAMED_CALL, now);
	c->burst = g->burst;
	c->left = g->left;
	c->ticks = g->ticks;
	c->gaps = g->gaps;
	c->least = g->least;
	c->spent = g->spent;
	usdt_names(c, task, probe, caller);
	if (bpf_ringbuf_output(&events, c, sizeof(*c), BPF_RB_NO_WAKEUP))
		count(CALLS_DROPPED_RING_FULL, 1);
	else
		count(CALLS_DELIVERED, 1);
}

/* Counts a call of PHP. The first one on an edge names it. */
static __noinline void usdt_count(struct usdt_guest *g, struct task_struct *task, const struct usdt_probe *probe,
				  __u64 func, const struct php_caller *caller)
{
	struct usdt_site site = { .pid = task->tgid, .line = caller->line };
	struct usdt_edge *e;

	site.callee = php_pointer(func + probe->opcodes);
	if (caller->func)
		site.caller = php_pointer(caller->func + probe->opcodes);
	e = bpf_map_lookup_elem(&usdt_edges, &site);
	if (!e) {
		bpf_map_update_elem(&usdt_edges, &site, &usdt_no_calls, BPF_NOEXIST);
		e = bpf_map_lookup_elem(&usdt_edges, &site);
		if (!e) {
			__sync_fetch_and_add(&g->lost, 1);
			return;
		}
		usdt_names(&e->names, task, probe, caller);
	}
	__sync_fetch_and_add(&e->calls, 1);
}

/* Begins a burst of the process that a tick interrupts, and asks for a window for it. */
static __always_inline void usdt_tick_guest(struct usdt_guest *g, __u32 pid, __u64 now)
{
	__u32 zero = 0, stride;
	struct usdt_notice n;
	__u64 *closed = bpf_map_lookup_elem(&usdt_closed, &pid);
	struct usdt_rate *rate = bpf_map_lookup_elem(&usdt_rates, &zero);

	if (g->mode != USDT_BURSTS || !rate || !rate->samples)
		return;
	if (g->burst && (!closed || *closed != g->burst) && now - g->burst < USDT_BURST_NS) {
		if (g->left) {
			g->ticks++;
			g->left_at = 0; /* this gap has an interruption in it */
		} else {
			g->missed++;
		}
		count(BURSTS_SKIPPED, 1);
		return;
	}
	stride = rate->stride ? rate->stride : 1;
	g->left = 0;
	barrier();
	g->tid = 0;
	g->skip = 1 + bpf_get_prandom_u32() % stride; /* in [1..STRIDE]: every call has the same chance */
	g->burst = now;
	g->ticks = 1 + g->missed;
	g->gaps = 0;
	g->missed = 0;
	g->least = ~0u;
	g->spent = g->left_at = 0;
	barrier();
	g->left = rate->samples;
	if (!usdt_ask(&n, pid, g, USDT_OPEN)) {
		g->left = 0;
		g->missed = g->ticks; /* and what the tick before has left open is asked for again by the next one */
		g->burst = 0;
		count(BURSTS_SKIPPED, 1);
		return;
	}
	__sync_fetch_and_add(&g->bursts, 1);
	count(BURSTS_ARMED, 1);
}

/*
 * Counts a hit of a burst down. Returns true if it is to be sampled. The thread of the burst's
 * first hit has it alone: gaps between calls are its own.
 */
static __always_inline bool usdt_take(struct usdt_guest *g, struct task_struct *task, __u64 now)
{
	__u32 zero = 0, tid = task->pid, left = g->left;
	struct usdt_rate *rate;

	if (left && !g->tid)
		__sync_val_compare_and_swap(&g->tid, 0, tid);
	if (!left || g->tid != tid) {
		count(CALL_HITS_REFUSED, 1);
		__sync_fetch_and_add(&g->refused, 1);
		return false;
	}
	usdt_gap(g, task, now);
	if (g->skip > 1) {
		g->skip--;
		return false;
	}
	rate = bpf_map_lookup_elem(&usdt_rates, &zero);
	g->skip = rate && rate->stride ? rate->stride : 1;
	g->left = left - 1;
	if (left == 1) {
		struct usdt_draft *draft = usdt_draft(task);

		if (draft) /* else the window ends when its time is over */
			usdt_ask(&draft->notice, task->tgid, g, USDT_FULL);
	}
	return true;
}
