/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Calls in PHP, as seen from php:function__entry(name, file, line, class, scope). That USDT probe stands in
 * dtrace_execute_ex (Zend/zend_dtrace.c), which PHP executes user functions with if it was started with
 * USE_ZEND_DTRACE=1, and is passed while its semaphore is not 0. Names come from the probe's arguments, the caller
 * from the chain of zend_execute_data (Zend/zend_compile.h).
 *
 * Everything that is read here was written by a guest: addresses are only ever read from, strings are cut, and the
 * chain is followed for a bounded length.
 */
#pragma once

#include "maps.bpf.h"
#include "operand.bpf.h"

#define MAX_PHP_GUESTS 4096 /* processes: a large php-fpm pool; 128 bytes each */
#define MAX_PHP_PROBES 32   /* sites of function__entry in all builds of PHP; builds seen have one each */

/*
 * How many frames that are not user code are looked past for a caller: internal functions (array_map), and the
 * frames without function that generators leave.
 */
#define MAX_PHP_INTERNAL 8

/* A burst that takes longer is given up. Whoever writes the semaphore clears it after the same time. */
#define PHP_BURST_NS 1000000000

/* One refused hit of so many asks once more for the semaphore to be cleared. */
#define PHP_CLEAR_EVERY 64

/* A process that nobody knows asks this often for its semaphore to be cleared. */
#define PHP_STRAY_NS 100000000

/*
 * Where things are in PHP's structures, bytes. The same from 7.4 to 8.4 on 64-bit machines; what those versions moved
 * is in struct php_probe.
 */
#define EXECUTE_DATA_OPLINE 0 /* zend_execute_data */
#define EXECUTE_DATA_FUNC 24
#define EXECUTE_DATA_PREV 48
#define FUNCTION_TYPE 0 /* zend_function: a byte */
#define FUNCTION_NAME 8
#define FUNCTION_SCOPE 16
#define OP_LINENO 24	 /* zend_op */
#define CLASS_NAME 8	 /* zend_class_entry */
#define STRING_VALUE 24 /* zend_string */

#define PHP_USER_FUNCTION 2 /* ZEND_USER_FUNCTION */
#define PHP_EVAL_CODE 4	    /* ZEND_EVAL_CODE */

/* One site of the probe in one build of PHP. */
struct php_probe {
	struct operand name, file, class_name; /* arguments of function__entry */
	__u32 filename, opcodes;	       /* in zend_op_array, bytes */
};

enum php_mode {
	PHP_BURSTS = 0,
	PHP_EXACT, /* every call is counted in php_edges; the semaphore stays set */
};

/* One process. Its own thread and ticks that interrupt it write here; user space adds and takes whole values. */
struct php_guest {
	__u64 start_ticks; /* event_header.start in 10 ms: guards against a reused pid */
	__u64 executing;   /* address of executor_globals.current_execute_data */
	__u32 mode;	   /* enum php_mode */

	__u32 left;   /* samples until the burst's end, 0: there is no burst */
	__u32 skip;   /* calls until the next sample, that one included */
	__u32 tid;    /* whose burst it is */
	__u64 burst;  /* names it: when it was armed */
	__u32 ticks, gaps, least; /* so far: see struct named_call */
	__u32 pad;
	__u64 spent;
	__u64 left_at;	/* when the program left its latest hit, 0 before the first */
	__u64 switches; /* of the thread then */

	__u64 hits;	  /* executions of the probe */
	__u64 refused;	  /* of them, those beyond a burst */
	__u64 mismatched; /* of them, those where PHP's structures are not as php_probe says */
	__u64 lost;	  /* calls that php_edges had no room for */
	__u64 bursts;
	__u64 hit_ns;  /* in the probe's program */
	__u64 tick_ns; /* in the tick's */
};

enum php_action {
	PHP_ARM = 1, /* set the semaphore: the guest runs */
	PHP_CLEAR,
	PHP_STRAY, /* somebody unknown runs with its semaphore set: a child of an armed parent, a crashed agent's guest */
};

/* What the kernel side asks of whoever may write to guests. */
struct php_notice {
	__u64 start_ticks;
	__u32 pid;
	__u32 action; /* enum php_action */
};

/* How much to sample, from the next tick on. */
struct php_rate {
	__u32 stride;  /* at least 1 */
	__u32 samples; /* 0: none */
};

/* An edge of the exact call graph. Code is identified by the address of its opcodes, which closures share. */
struct php_site {
	__u64 callee, caller; /* opcodes; the caller is 0 if there is none */
	__u32 pid;
	__u32 line; /* of the call, in the caller's file */
};

/* How often, and between whom. The header of names is not filled in. */
struct php_edge {
	__u64 calls;
	struct named_call names;
};

/* The nearest user function that called, and where. */
struct php_caller {
	__u64 func; /* zend_op_array */
	__u32 line;
};

/* key: the attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PHP_PROBES);
	__type(key, __u32);
	__type(value, struct php_probe);
} php_probes SEC(".maps");

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PHP_GUESTS);
	__type(key, __u32);
	__type(value, struct php_guest);
} php_guests SEC(".maps");

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct php_rate);
} php_rates SEC(".maps");

/* 170 notices: the reader is woken by each one and runs before everything else. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} php_notices SEC(".maps");

/* key: pid of an unknown process; value: when it last asked for its semaphore to be cleared */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} php_strays SEC(".maps");

/* Takes memory for the edges that there are: 15 MB when full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct php_site);
	__type(value, struct php_edge);
} php_edges SEC(".maps");

static const struct php_edge php_no_calls;

static __noinline __u64 php_pointer(__u64 addr)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)addr);
	return v;
}

/* Asks for something. Returns false if there was no room to. */
static __always_inline bool php_ask(__u32 pid, __u64 start_ticks, __u32 action)
{
	struct php_notice *n = bpf_ringbuf_reserve(&php_notices, sizeof(*n), 0);

	if (!n)
		return false;
	n->start_ticks = start_ticks;
	n->pid = pid;
	n->action = action;
	bpf_ringbuf_submit(n, BPF_RB_FORCE_WAKEUP);
	return true;
}

static __noinline bool php_user_code(__u64 func)
{
	__u8 type = 0;

	bpf_probe_read_user(&type, sizeof(type), (void *)(func + FUNCTION_TYPE));
	return type == PHP_USER_FUNCTION || type == PHP_EVAL_CODE;
}

/* Who called the function of this frame. Returns false if no user code did. */
static __noinline bool php_caller_of(__u64 frame, struct php_caller *caller)
{
	int i;

	for (i = 0; i < MAX_PHP_INTERNAL; i++) {
		frame = php_pointer(frame + EXECUTE_DATA_PREV);
		if (!frame)
			break;
		caller->func = php_pointer(frame + EXECUTE_DATA_FUNC);
		if (caller->func && php_user_code(caller->func)) {
			bpf_probe_read_user(&caller->line, sizeof(caller->line),
					    (void *)(php_pointer(frame + EXECUTE_DATA_OPLINE) + OP_LINENO));
			return true;
		}
	}
	caller->func = 0;
	caller->line = 0;
	return false;
}

static __always_inline void php_string(__u8 *to, __u32 size, __u64 from)
{
	if (!from || bpf_probe_read_user_str(to, size, (void *)from) < 0)
		to[0] = 0;
}

/* The characters of the zend_string that a field points to; 0 if it points nowhere. */
static __always_inline __u64 php_characters(__u64 field)
{
	__u64 s = php_pointer(field);

	return s ? s + STRING_VALUE : 0;
}

/* Names the call that the probe stopped in. */
static __noinline void php_names(struct named_call *c, struct task_struct *task, const struct php_probe *probe,
				 const struct php_caller *caller)
{
	__u64 scope;

	c->caller_line = caller->line;
	c->engine = ENGINE_SEMAPHORE;
	c->pad[0] = c->pad[1] = c->pad[2] = 0;
	php_string(c->callee_name, sizeof(c->callee_name), argument(task, &probe->name));
	php_string(c->callee_class, sizeof(c->callee_class), argument(task, &probe->class_name));
	php_string(c->callee_file, sizeof(c->callee_file), argument(task, &probe->file));
	c->caller_name[0] = c->caller_class[0] = c->caller_file[0] = 0;
	if (!caller->func)
		return;
	php_string(c->caller_name, sizeof(c->caller_name), php_characters(caller->func + FUNCTION_NAME));
	php_string(c->caller_file, sizeof(c->caller_file), php_characters(caller->func + probe->filename));
	scope = php_pointer(caller->func + FUNCTION_SCOPE);
	if (scope)
		php_string(c->caller_class, sizeof(c->caller_class), php_characters(scope + CLASS_NAME));
}

/*
 * The function that is being entered, if PHP's structures are where the probe says: the probe's arguments point into
 * the very strings that are found by way of them. Else 0, and nothing is reported that might be wrong.
 */
static __noinline __u64 php_entered(struct task_struct *task, const struct php_probe *probe, __u64 frame)
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

/* Fields of task_struct that only this technique reads. */
struct task_struct___php {
	unsigned long nvcsw, nivcsw; /* times that the task gave up the CPU, and lost it */
} __attribute__((preserve_access_index));

static __always_inline __u64 php_switches(struct task_struct *task)
{
	struct task_struct___php *t = (struct task_struct___php *)task;

	return t->nvcsw + t->nivcsw;
}

/* Adds the time since the latest hit of the burst to what it spent, if the thread ran all the while. */
static __always_inline void php_gap(struct php_guest *g, struct task_struct *task, __u64 now)
{
	__u64 gap = now - g->left_at;

	if (!g->left_at || gap > PHP_BURST_NS || php_switches(task) != g->switches)
		return;
	g->gaps++;
	g->spent += gap;
	if (gap < g->least)
		g->least = gap;
}

static __always_inline void php_leave(struct php_guest *g, struct task_struct *task, __u64 now)
{
	g->left_at = now;
	g->switches = php_switches(task);
}

/* Sends a sampled call. */
static __noinline void php_sample(struct php_guest *g, struct task_struct *task, const struct php_probe *probe,
				  const struct php_caller *caller, __u64 now)
{
	struct named_call *c;

	count(CALLS_ATTEMPTED, 1);
	c = bpf_ringbuf_reserve(&events, sizeof(*c), 0);
	if (!c) {
		count(CALLS_DROPPED_RING_FULL, 1);
		return;
	}
	fill_header(&c->header, task, EVENT_NAMED_CALL, now);
	c->burst = g->burst;
	c->left = g->left;
	c->ticks = g->ticks;
	c->gaps = g->gaps;
	c->least = g->least;
	c->spent = g->spent;
	php_names(c, task, probe, caller);
	bpf_ringbuf_submit(c, BPF_RB_NO_WAKEUP);
	count(CALLS_DELIVERED, 1);
}

/* Counts a call. The first one on an edge names it. */
static __noinline void php_count(struct php_guest *g, struct task_struct *task, const struct php_probe *probe,
				 __u64 func, const struct php_caller *caller)
{
	struct php_site site = { .pid = task->tgid, .line = caller->line };
	struct php_edge *e;

	site.callee = php_pointer(func + probe->opcodes);
	if (caller->func)
		site.caller = php_pointer(caller->func + probe->opcodes);
	e = bpf_map_lookup_elem(&php_edges, &site);
	if (!e) {
		bpf_map_update_elem(&php_edges, &site, &php_no_calls, BPF_NOEXIST);
		e = bpf_map_lookup_elem(&php_edges, &site);
		if (!e) {
			__sync_fetch_and_add(&g->lost, 1);
			return;
		}
		php_names(&e->names, task, probe, caller);
	}
	__sync_fetch_and_add(&e->calls, 1);
}

/* Begins a burst of the thread that a tick interrupts. */
static __always_inline void php_tick_guest(struct php_guest *g, __u32 pid, __u32 tid, __u64 now)
{
	__u32 zero = 0, stride;
	struct php_rate *rate = bpf_map_lookup_elem(&php_rates, &zero);

	if (g->mode != PHP_BURSTS || !rate || !rate->samples)
		return;
	if (g->left && now - g->burst < PHP_BURST_NS) {
		g->ticks++;
		g->left_at = 0; /* this gap has an interruption in it */
		count(BURSTS_SKIPPED, 1);
		return;
	}
	stride = rate->stride ? rate->stride : 1;
	g->left = 0;
	g->tid = tid;
	g->skip = 1 + bpf_get_prandom_u32() % stride; /* in [1..STRIDE]: every call has the same chance */
	g->burst = now;
	g->ticks = 1;
	g->gaps = 0;
	g->least = ~0u;
	g->spent = g->left_at = 0;
	if (!php_ask(pid, g->start_ticks, PHP_ARM)) {
		count(BURSTS_SKIPPED, 1);
		return;
	}
	/* The thread stands still here: it sees all of this or nothing. */
	g->left = rate->samples;
	__sync_fetch_and_add(&g->bursts, 1);
	count(BURSTS_ARMED, 1);
}

/* A hit that no burst wants. It may be the first of very many: the semaphore must have been left set. */
static __noinline void php_refuse(struct php_guest *g, __u32 pid)
{
	count(CALL_HITS_REFUSED, 1);
	if (__sync_fetch_and_add(&g->refused, 1) % PHP_CLEAR_EVERY == PHP_CLEAR_EVERY - 1 && !g->left)
		php_ask(pid, g->start_ticks, PHP_CLEAR);
}

/* Counts a hit of a burst down. Returns true if it is to be sampled. */
static __noinline bool php_take(struct php_guest *g, __u32 pid)
{
	__u32 zero = 0;
	struct php_rate *rate;

	if (g->skip > 1) {
		g->skip--;
		return false;
	}
	rate = bpf_map_lookup_elem(&php_rates, &zero);
	g->skip = rate && rate->stride ? rate->stride : 1;
	if (g->left > 1) {
		g->left--;
		return true;
	}
	/* Asked for before the burst is over: a tick in between must not arm first and then see itself cleared. */
	php_ask(pid, g->start_ticks, PHP_CLEAR);
	barrier();
	g->left = 0;
	return true;
}

static __always_inline void php_stray(__u32 pid, __u64 start_ticks, __u64 now)
{
	__u64 *last = bpf_map_lookup_elem(&php_strays, &pid);

	count(CALL_HITS_REFUSED, 1);
	if (last && now - *last < PHP_STRAY_NS)
		return;
	bpf_map_update_elem(&php_strays, &pid, &now, BPF_ANY);
	php_ask(pid, start_ticks, PHP_STRAY);
}
