/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Working memory of one CPU. Ticks do not nest into each other on a CPU, so a tick owns it while it
 * runs. Programs that can be preempted (uprobes) have their own, in another object, which they
 * claim (observe.bpf.h). About 0.35 MB a CPU.
 */
#pragma once

#include "kernel/maps.bpf.h"
#include "record/cpython.h"
#include "record/observation.h"
#include "record/sample.h"
#include "record/unwind.h"

#define STACKCOPY_WORDS 1024 /* a power of two; one copy takes a quarter of it */
#define STACKCOPY_CHUNK 2048 /* bytes: most stacks fit into one or two */
#define SEGMENTS 4096	  /* a power of two: 4,096 x 128 B segments cover 512 KB of hot code */
#define WAYS 2		  /* of these, in a set: places that a segment may have */
#define RECENT 512	  /* a power of two */
#define RECENT_STEP 64	  /* bytes of stack for each of those */
#define HEADER_WORDS 32	  /* a power of two: of a CodeBlob, what is needed of its fields is before */
#define METHODS 1024	  /* a power of two */
#define THREADS 256	  /* a power of two */
#define RULES 1024	  /* a power of two */
#define SCAN_WORDS 96	  /* how far up a return address is searched: leaf calls' frames are small */
#define SCAN_GROUP 16	  /* of these, looked at together */
#define SCAN_BUDGET 512	  /* words that are searched for one sample. A word takes one read of the target at most */
/* words of the VM's map of code, of code's headers, and of chunks, that are read for one sample */
#define LOOKUP_BUDGET 8192
#define SPILL_CHUNK 32	  /* bytes of code that are looked at together */
#define SPILL_TAIL 8	  /* of code behind these: add rsp, N and the first byte of a jmp, but for one */
#define FIT_WORDS 32	  /* what the budget is charged for looking at the code behind one word */
#define FIT_ROUNDS (SCAN_WORDS / SCAN_GROUP + SCAN_BUDGET / FIT_WORDS) /* in these the words end, or the budget */

/*
 * What the walker needs to know of the code around one pc. A set is one cache line, so a frame
 * takes one. Addresses are offsets from hotspot_process.code_low.
 */
struct segment {
	__u32 tag;	  /* offset >> segment_shift */
	__u32 serial;	  /* of the VM that this was read from, 0 if none */
	__u32 epoch;	  /* epochs.code when it was known to be right */
	__u32 begin;	  /* first instruction */
	__u32 frame;	  /* bytes from sp to the caller's sp */
	__u32 compile_id;
	__u32 handlers;	  /* no deopt handler is nearer to begin; ~0 if there is none */
	__u16 complete;	  /* the frame is there once pc - begin reaches this */
	__u8 kind;	  /* enum blob_kind */
	__u8 pad;
};

/* The rest, which few frames need. */
struct segment_rest {
	__u32 blob;	/* the CodeBlob if it has a compile id, 0 otherwise */
	__u32 deopt;	/* deopt handler - begin, 0 if none */
	__u32 deopt_mh; /* the same for method-handle calls */
	__s32 orig_pc;	/* where a deoptimised frame keeps its pc, from sp */
};

/* What is known of a method that the interpreter runs. */
struct interpreted_method {
	__u64 method;	   /* Method*, 0 if none */
	__u64 begin;	   /* first bytecode */
	__u64 id;	   /* see method_id */
	__u32 serial;	   /* of the VM */
	__u32 class_epoch; /* in which it was compared with seen_methods */
	__u32 walk;	   /* the walk that read it last */
	__u32 size;	   /* bytes of bytecode */
} __attribute__((aligned(64)));

enum blob_kind {
	BLOB_NONE,
	BLOB_NMETHOD,
	BLOB_NATIVE, /* an nmethod around a native method */
	BLOB_INTERPRETER,
	BLOB_VTABLE,
	BLOB_ADAPTER,
	BLOB_CONTINUATION, /* JDK 21+: stubs that thaw and freeze virtual threads */
	/*
	 * JDK 16+: a stub through which native code calls Java (java.lang.foreign); frame is where
	 * its anchor is
	 */
	BLOB_UPCALL,
	BLOB_STUB,
};

/*
 * A thread known to be a JavaThread. {tid, born} is its identity; the proof that it still is one is
 * read again every time.
 */
struct java_thread {
	__u64 born; /* ns, CLOCK_BOOTTIME */
	__u32 tid;
	__u32 serial;
	__u64 tls_slot;	 /* address of Thread::_thr_current of this thread, with HOTSPOT_TLS */
	__u64 thread;	 /* JavaThread* */
	__u64 stack_base; /* highest address of its stack */
	__u32 own_tid;	 /* as in struct known_thread_key, with HOTSPOT_THREADS */
	/*
	 * with PROCESS_CPYTHON: enum python_state. Then thread is its PyThreadState, or 0; tls_slot
	 * the first interpreter, and stack_base when it was looked for, ns
	 */
	__u32 python;
} __attribute__((aligned(64)));

/* What an unwind table says of an address. */
struct known_rule {
	__u64 pc;
	__u32 serial; /* unwound_process.serial */
	__u32 rule;
};

/* The user's registers, whatever the architecture calls them. */
struct user_registers {
	__u64 pc, sp, bp;
	__u64 r13, rbx; /* bytecode pointer; Method* in an interpreter entry */
	__u64 thread;	/* r15, x28 on arm64: the JavaThread, in Java code */
	__u64 goroutine; /* r14: the goroutine, in code of Go; 0 on arm64 */
};

struct scratch {
	__u64 stackcopy_low, stackcopy_len; /* what of the stack is in stackcopy[], bytes */
	__u64 stackcopy[STACKCOPY_WORDS];
	__u64 words[SCAN_WORDS];
	struct segment found; /* result of segment_find and segment_of; of the former without tag, serial and epoch */
	struct segment_rest found_rest;
	__u64 header_len, header[HEADER_WORDS]; /* of segment_find: what was read of the blob, bytes */
	__u64 found_error; /* see recent_segment */
	struct user_registers regs; /* as sampled */
	struct {
		__u64 owner;	/* serial of the VM << 32 | code epoch */
		__u64 stack_base; /* 0 if unknown */
		__u64 thread;	 /* JavaThread*, 0 if it is none */
		__u64 found_thread; /* result of find_known_thread */
		__u64 native_to; /* native frames end below this address */
		/*
		 * virtual thread with frames on the heap: the ContinuationEntry and its
		 * Continuation
		 */
		__u64 entry, continuation;
		__u64 next_chunk; /* reference to the StackChunk that comes next */
		__u64 chunk_at;	 /* result of find_chunk */
		__u64 chunk_to;	 /* the frames of the chunk in which the walk stands end there; 0 on the stack */
		__u64 stack_to;	 /* chunk_to, or stack_base */
		/*
		 * in a chunk: frames whose caller's sp is above that have none there; ~0 on the
		 * stack
		 */
		__u64 heap_from;
		__u64 relative;	 /* ~0 in a chunk, 0 on the stack */
		__u32 walk;	 /* counts walks */
		__u32 redefines; /* see may_redefine; 0 if not asked yet */
		__u32 tid;
		__u32 chunk; /* bytes of the stack that are copied at once */
		__u32 java_frames;
		__u32 top, top_kind; /* the first frame that is no native one, and its enum blob_kind */
		__u32 anchored;	 /* that one is at the anchor */
		__u32 thawing;	 /* the walk has come to a stub that has the VM copy frames back */
		__u32 unmounted; /* the walk begins in a chunk, where the registers say */
		__u32 on_heap;	 /* the first frame that is on the heap, 0 if there is none */
		__u64 maybe_caller; /* result of find_maybe_caller */
		__u32 scan_left; /* of SCAN_BUDGET */
		__u32 scan_before; /* at the begin of the walk */
		__u32 lookup_left; /* of LOOKUP_BUDGET */
		__u64 deadline;	 /* ns: when walks end */
		__u64 looked;	 /* ns: the last look at the clock */
		__u64 switches;	 /* as switches_of, where that matters */
		__u32 late;	 /* the deadline has passed */
		__u32 unclocked; /* as CLOCK_STEPS, since the last look at the clock */
		__u32 kernel; /* the tick came in the kernel */
		__u64 task;   /* whose stack it is */
		__u64 method_pool;
		/* as in struct seen_method: of the method that see_method is asked about */
		__u64 method_const, method_shape, method_name;
	} start; /* of one sample; what the verifier need not follow, and no stack has room for */
	struct {
		__u64 root;   /* tag of no frame; 0: neither does the sample refer to another one nor will one to it */
		__u64 tag;    /* of the known suffix */
		__u64 thread; /* tag of the thread and its name */
		__u32 frames; /* of the user's */
		__u32 suffixes; /* that are not empty */
		__u32 base;   /* which of them is known, or NO_SUFFIX */
	} stack; /* what of the sample's stack is known: see refer */
	struct {
		__u64 first;  /* the thread's innermost frame, 0 if it has none */
		__u64 outer;  /* the innermost one of its other state, behind those from first on */
		__u64 next;   /* the frame that the walk comes to next */
		__u64 then;   /* outer, until the walk comes there */
		__u32 waits;  /* for the global interpreter lock */
		__u32 waiting; /* likewise, and the walk has yet to say so */
		__u32 entry;  /* result of python_frame */
		__u32 native; /* result of python_next */
		__u32 rest;   /* no native frames follow */
		__u32 state;  /* enum python_state */
		__u64 frame[PYTHON_FRAME_WORDS]; /* what was read of a frame, and of its code object */
		__u64 code[PYTHON_CODE_WORDS];
	} python;
	struct {
		__u64 pc, sp, bp;
	} caller; /* result of stub_caller, interpreter_frame */
	union {
		struct registers saved; /* the user's, of a tick in kernel mode */
		__u64 saved_words[34];	/* as many on every architecture */
	};
	struct {
		__u64 untabled; /* the first pc that has no table and may get one */
		__u64 stack_to; /* copies of the stack end there at the latest */
		__u64 interrupted; /* pc at which a signal came; 0 if the next frame is none */
		__u32 walk;   /* as start.walk, of which walk this is */
		__u32 serial; /* of the process's record, 0 if there is none */
		__u32 rule;   /* result of find_rule */
		__u32 led;    /* the last native frame had a rule */
		__u32 wanted; /* a table is to be asked for */
		__u32 frames, misses; /* see UNWIND_FRAMES */
	} unwind; /* of one walk, once it has come to native code */
	struct {
		__u32 serial; /* unwound_process.serial, whose both mappings are */
		struct unwind_mapping last;   /* of the last rule that was looked up */
		struct unwind_mapping framed; /* the last one in which calls are made with a frame pointer */
	} unwind_mappings; /* stay from one walk to the next */
	__u64 frame; /* result of interpreter_frame */
	__u64 moved; /* result of find_moved */
	struct {
		__u64 offset, index, entries, table;
	} forward; /* of find_moved */
	struct {
		__u64 begin, size; /* bytes: of a chunk's words */
		__u64 from; /* where in them frames began; ~0 if that was not found */
		__u32 left; /* words that may still say it */
	} frozen; /* of all_frozen */
	__u8 code[SPILL_CHUNK + SPILL_TAIL]; /* that spilled_here looks at */
	__u64 any;   /* see any() */
	struct segment recent[RECENT] __attribute__((aligned(64))); /* by where a frame stands, see recent_segment */
	struct segment segments[SEGMENTS] __attribute__((aligned(64)));
	struct segment_rest rest[SEGMENTS]; /* of segments[] */
	struct interpreted_method methods[METHODS];
	struct java_thread threads[THREADS];
	struct known_rule rules[RULES] __attribute__((aligned(64)));
	struct {
		__u64 begin;	/* ns: when the probe was hit */
		__u64 klass;	/* whose name becomes the text, 0 for none */
		/*
		 * not 0 while a program uses this memory that can be preempted: with PREEMPTIBLE,
		 * whose it is
		 */
		__u32 claimed;
		__u32 bare;	/* no context is wanted */
		__u32 handle;	/* as struct lock_wait */
		__u32 pad;
	} watch; /* of one observation */
	struct {
		struct observation o;
		__u8 text[MAX_OBSERVED_TEXT];
	} seen;
	struct sample sample;
	__u64 tail[MAX_USER_FRAMES / 2 + 2]; /* room for what goes behind the frames */
};

/* key: CPU, or first_spare and up; the size is set at load */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* for its alignment: values begin at a page, not in the middle of a line */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/*
 * CPUs from this one on have no memory of their own: they came online after the maps were sized.
 * They take spares, which all of them share. Set at load.
 */
const volatile __u32 first_spare = ~0u;

#define SPARES 4 /* a power of two */

#ifdef PREEMPTIBLE
/*
 * A thread that has lost its CPU, for long if its cgroup is throttled, still has the working memory
 * that it claimed. Then others on that CPU take spares, too. So whose memory is whose is known by
 * the thread.
 */
static __always_inline __u32 claimant(void)
{
	return (__u32)bpf_get_current_pid_tgid() | 1u << 31;
}

/* The memory that the current thread has claimed. */
static __always_inline struct scratch *this_scratch(void)
{
	__u32 who = claimant(), at = bpf_get_smp_processor_id();
	struct scratch *s;

	if (at < first_spare) {
		s = bpf_map_lookup_elem(&scratches, &at);
		if (s && s->watch.claimed == who)
			return s;
	}
	at = first_spare + (who & (SPARES - 1));
	return bpf_map_lookup_elem(&scratches, &at);
}

/* Claims memory for the current thread; 0 if all that it may have is in use. */
static __always_inline struct scratch *claim_scratch(void)
{
	__u32 who = claimant(), at = bpf_get_smp_processor_id();
	struct scratch *s;

	if (at < first_spare) {
		s = bpf_map_lookup_elem(&scratches, &at);
		if (s && !__sync_val_compare_and_swap(&s->watch.claimed, 0, who))
			return s;
	}
	at = first_spare + (who & (SPARES - 1));
	s = bpf_map_lookup_elem(&scratches, &at);
	if (s && !__sync_val_compare_and_swap(&s->watch.claimed, 0, who))
		return s;
	return 0;
}
#else
/*
 * Whether this CPU's memory is one that others may use at the same time, so that it has to be
 * claimed.
 */
static __always_inline bool shares_scratch(void)
{
	return bpf_get_smp_processor_id() >= first_spare;
}

/* Where this CPU's memory is. */
static __always_inline __u32 this_place(void)
{
#ifdef ALONE
	return 0; /* one program of the object runs at a time, on whatever CPU */
#else
	__u32 at = bpf_get_smp_processor_id();

	return at < first_spare ? at : first_spare + (at & (SPARES - 1));
#endif
}

static __always_inline struct scratch *this_scratch(void)
{
	__u32 at = this_place();

	return bpf_map_lookup_elem(&scratches, &at);
}

/* Claims this CPU's memory, which an interrupt or another CPU may want too; 0 if it is in use. */
static __always_inline struct scratch *claim_scratch(void)
{
	struct scratch *s = this_scratch();

	return s && !__sync_lock_test_and_set(&s->watch.claimed, 1) ? s : 0;
}
#endif

static __always_inline void release_scratch(struct scratch *s)
{
	__sync_lock_test_and_set(&s->watch.claimed, 0);
}

/* The value, which the verifier takes for any. */
static __always_inline __u64 any(struct scratch *s, __u64 v)
{
	volatile __u64 *cell = &s->any;

	*cell = v;
	return *cell;
}

/*
 * Reads a word for its cache line alone. The target has evicted most of what a sample needs. Lines
 * that are read one right after the other arrive together, while a walk would wait for each.
 */
static __always_inline void touch(const void *at)
{
	(void)*(const volatile __u32 *)at;
}

/*
 * The same for what is cached of the segments of frames from sp on, as far as one piece of the
 * stack reaches.
 */
static __always_inline void touch_recent(const struct scratch *s, __u64 sp)
{
	__u64 at = sp / RECENT_STEP;

#pragma clang loop unroll(disable) /* it would need more stack than there is */
	for (__u32 i = 0; i < STACKCOPY_CHUNK / RECENT_STEP; i += 64 / sizeof(struct segment))
		touch(&s->recent[(at + i) & (RECENT - 1)]);
}
