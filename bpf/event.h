/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side and user space send each other: the only definition of both directions. Go's structs are generated
 * from here. Integers are in host byte order; times are ns of CLOCK_MONOTONIC unless said otherwise.
 */
#pragma once

#include <linux/types.h>

#define MAX_USER_FRAMES 1024
#define ROOT_FRAMES 124 /* of those, outermost ones of a deeper stack */
#define MAX_WALKED_FRAMES 5120 /* of a stack whose outermost frames are looked for: five times what fits, so a walk takes five times as long */
#define MAX_KERNEL_FRAMES 127
#define MAX_FRAMES (MAX_USER_FRAMES + MAX_KERNEL_FRAMES)
#define MAX_KEPT_FRAMES (2 * MAX_USER_FRAMES) /* of a stack that a thread's next sample may share: partial walks reach further */

enum event_kind {
	EVENT_SAMPLE = 1,   /* struct sample */
	EVENT_CODE_LOAD,    /* struct code_load: a compilation was installed */
	EVENT_PROCESS_EXEC, /* struct process_event */
	EVENT_PROCESS_EXIT, /* struct process_event: its last thread is gone */
	EVENT_CALL,	    /* struct call: a call that an engine sampled */
	EVENT_NAMED_CALL,   /* struct named_call: a call that an engine sampled, with names that were read at once */
	EVENT_NEW_METHOD,   /* struct new_method (exact.h): a method that was not called before */
	EVENT_OBSERVED,	    /* struct sample, and a struct observation behind its frames: what a probe saw, and where */
	EVENT_FULL_SAMPLE,  /* struct sample, and behind its frames the __u64 tag of no frame: others may refer to it */
	EVENT_SHORT_SAMPLE, /* struct short_sample */
	EVENT_INVOCATION,   /* struct invocation: one of a method has ended */
};

/* Every event begins with this. {pid, start, exec} is the identity of a process: pids are reused. */
struct event_header {
	__u64 time;
	__u64 start; /* of the process: ns, CLOCK_BOOTTIME */
	__u32 pid, tid;
	__u32 exec; /* how often the process had called exec, low 32 bits */
	__u8 kind;  /* enum event_kind */
	__u8 stopped; /* samples: 1 if the VM had stopped its Java threads, as far as safepoints are recorded */
	__u16 left_out; /* samples: frames between the innermost and the ROOT_FRAMES outermost ones, 0 if all are there */
};

enum invocation_end {
	INVOCATION_RETURNED,
	INVOCATION_UNWOUND, /* it was over when the thread was seen next: an exception, or its code was deoptimised */
};

/* Its thread is that of the header, and its end is the header's time. */
struct invocation {
	struct event_header header;
	__u64 begun;
	__u64 sp;     /* at the entry */
	__u64 ran;    /* ns on a CPU, if known */
	__u64 waited; /* ns for a CPU */
	__u8 end;     /* enum invocation_end */
	__u8 known;   /* ran is */
	__u8 pad[6];
};

/* Why a walk of the user stack ended. */
enum walk_end {
	END_NONE = 0,	  /* no user stack: a kernel thread */
	END_ROOT,	  /* the first Java frame of the thread, or the end of the frame-pointer chain */
	END_DEPTH,	  /* MAX_USER_FRAMES */
	END_POINTER,	  /* native: the saved frame pointer does not lead on */
	END_NO_CODE,	  /* Java: a return address outside the code cache */
	END_NO_BLOB,	  /* Java: nothing at that address in the code cache */
	END_READ,	  /* stack memory could not be read */
	END_DIRECTION,	  /* Java: a caller's frame that is not above its callee's */
	END_INTERPRETER,  /* Java: an interpreter frame that does not hold together */
	END_HEAP,	  /* Java: the rest of a virtual thread's stack is on the heap, and was not found there */
	END_COMPAT,	  /* a 32-bit process */
	END_NO_ANCHOR,	  /* Java thread in native code, and no way back to its Java frames was found */
	END_UNSUPPORTED,  /* this architecture or build of the VM cannot be walked yet */
	END_KNOWN,	  /* the rest is known: SAMPLE_LINK, or SAMPLE_SHARED */
	END_SCAN,	  /* Java: SCAN_BUDGET words were searched for return addresses or LOOKUP_BUDGET read of headers of code and of chunks, and more would have to be */
	END_DEEP,	  /* MAX_WALKED_FRAMES */
	END_THAW,	  /* Java: frames of a virtual thread are being copied to its stack, or from there */
	END_COUNT,
};

/*
 * A frame of the user stack is one word. The top four bits are the kind:
 *
 *   63..60  59 ........ 32  31 ....................... 0
 *   JIT     compile id      pc - hotspot_process.code_low     both low bits
 *   STUB    0               pc - hotspot_process.code_low
 *   INTERP  59 .. 16: Method* >> 3;  15 .. 0: bytecode index, FRAME_NO_BCI if unknown
 *   NATIVE  58 .. 0: pc
 *           or bit 59, 58 .. 31: a return address - pc, 30 .. 0: pc
 *
 * Frame 0 holds the sampled pc, the others hold return addresses. Frame 1 may be one with bit 59, of code of Go: what was on top of the
 * stack follows a call, and is the return address of frame 0 if that has no frame of its own. If it has one, nothing is there.
 */
enum frame_kind {
	FRAME_JIT = 1,
	FRAME_STUB,
	FRAME_INTERP,
	FRAME_NATIVE,
};
#define FRAME_KIND_SHIFT 60
#define FRAME_MAYBE_SHIFT 59 /* FRAME_NATIVE */
#define FRAME_MAYBE_PC_BITS 31
#define FRAME_MAYBE_DISTANCE_BITS 28 /* a signed number */
#define FRAME_NO_BCI 0xffff

enum sample_flags {
	SAMPLE_KERNEL = 1 << 0,	      /* the tick came in kernel mode */
	SAMPLE_JAVA_THREAD = 1 << 1,  /* the thread is a JavaThread of an attached VM */
	SAMPLE_JAVA_FRAMES = 1 << 2,  /* and has Java frames */
	SAMPLE_ATTACHED = 1 << 3,     /* the process's VM was known when the sample was taken */
	SAMPLE_DEPTHS = 1 << 4,	      /* behind the frames there is a depth for each of the user's; see below */
	SAMPLE_LINK = 1 << 5,	      /* the leaf and its caller suffice: both were below the same frames before */
	SAMPLE_DRAWN = 1 << 6,	      /* walked by the luck of the draw, not because its link was new */
	SAMPLE_SHARED = 1 << 7,	      /* behind the frames there is a struct shared_stack */
};

/* How much of a user stack a sample has. */
enum context_mode {
	CONTEXT_WALK = 0, /* all of it */
	CONTEXT_PARTIAL,  /* what the thread's previous sample did not have: SAMPLE_SHARED */
	CONTEXT_CHAIN,	  /* two frames where those are known already (SAMPLE_LINK), else all of it: SAMPLE_DEPTHS */
};

/* A tag of a link stands in known_links at tag >> LINK_SLOT_SHIFT, modulo their number. */
enum link_tags {
	LINK_STEADY = 1,
	LINK_SLOT_SHIFT = 40,
	KNOWN_LINKS = 1 << 16, /* a power of two; links with one slot in common displace each other */
};

/*
 * Depths are __u32: bytes from the base of the thread's stack down to the frame's canonical frame address, which is the
 * stack pointer of its caller before the call. 0 where that is not known. Before them, unless the sample is a SAMPLE_LINK,
 * stands the __u64 tag of its link, 0 if it has none: without LINK_STEADY if it was walked for that.
 *
 * Where contexts are checked every stack is there to its root; flags and struct shared_stack are what they would have
 * been.
 */
struct sample {
	struct event_header header;
	/*
	 * frames[]: the user's first, innermost first; then the kernel's pcs. With left_out, the last ROOT_FRAMES of the user's are a
	 * ring: the innermost one of them is left_out % ROOT_FRAMES words behind its beginning.
	 */
	__u16 user_frames, kernel_frames;
	__u8 end;			  /* enum walk_end */
	__u8 flags;			  /* enum sample_flags */
	__u16 cpu;
	__u32 class_epoch; /* epochs.classes */
	__u32 attachment;  /* hotspot_process.serial, 0 if none */
	__u8 comm[16];	   /* of the thread */
	__u64 frames[MAX_FRAMES];
};

/*
 * A sample whose outermost user frames are those that another one had, which had the tag base: all of that one's but the innermost, or so
 * many of the outermost that the rest can be divided by SUFFIX_STEP. The thread's name, class_epoch and attachment are as they were.
 * Own frames follow, as in struct sample: at least one unless the stack has none. The last of the user's is next to the known ones.
 */
struct short_sample {
	struct event_header header;
	__u16 user_frames, kernel_frames; /* own */
	__u8 end;			  /* enum walk_end */
	__u8 flags;			  /* enum sample_flags */
	__u16 cpu;
	__u64 base;
};

enum suffix_tags {
	SUFFIX_SLOT_SHIFT = 40, /* where a tag stands in known_suffixes */
	NO_SUFFIX = ~0u,
};

/* The frames of a stack that a thread's previous sample had, too. Behind the frames, with SAMPLE_SHARED. */
struct shared_stack {
	__u32 serial; /* of this sample among its thread's, never 0 */
	__u32 base;   /* serial of the sample that has the rest; 0 if this one has all of its frames */
	__u32 frames; /* so many of the base's outermost frames follow this sample's own; less than MAX_KEPT_FRAMES */
	__u32 own;    /* user frames of this sample, innermost first, that are not taken from the base */
};

/* What a probe saw, and what values hold of it. Text is the class of the object, in the VM's form, unless said otherwise. */
enum observed {
	OBSERVED_ALLOCATION = 1, /* bytes of the object; bytes of all objects that it stands for */
	OBSERVED_MONITOR,	 /* ns in ObjectMonitor::enter */
	OBSERVED_PARK,		 /* ns in Unsafe.park */
	OBSERVED_VALUES,	 /* what struct probed_values asks for. The value of a text is where it is in text << 32 | its bytes */
	OBSERVED_PAUSE,		 /* ns from the order to stop until Java threads may go on; text is struct pause_cause */
	OBSERVED_FAULT,		 /* the data address; the pc; text is struct registers */
	OBSERVED_OVERFLOW,	 /* how many events of a CPU's counter it stands for; the probe's number identifies the counter */
	OBSERVED_WAIT,		 /* a thread was off the CPU: see enum wait_values; flags are an enum away_state */
	OBSERVED_WAKER,		 /* who ended a wait, before its record: see enum waker_values; flags are of enum waker_flags; text is the process's comm */
};

/* Values of OBSERVED_WAIT. */
enum wait_values {
	WAIT_SINCE,   /* when the thread left its CPU; header.time is when it came back */
	WAIT_DELAY,   /* ns at the end of the wait in which it was runnable and waited for a CPU */
	WAIT_MEAN,    /* ns: a wait of that length and longer is always recorded, a shorter one with the probability length / WAIT_MEAN */
	WAIT_PC,      /* the user's registers: threads that wait again with both the same wait at the same place */
	WAIT_SP,
	WAIT_WOKEN,   /* when the thread was woken, if wakers are recorded and that was seen; 0 otherwise */
	WAIT_LEAST,   /* ns, with WAIT_WOKEN: the wait was recorded as it is longer, and so was its waker if WAIT_WOKEN - WAIT_SINCE is */
	WAIT_VALUES,
};

/* Values of OBSERVED_WAKER. They identify the wait. */
enum waker_values {
	WAKER_TID,   /* of the thread that waited */
	WAKER_SINCE, /* its WAIT_SINCE */
	WAKER_VALUES,
};

/* Interrupts wake threads while another one is the current one: only the kernel's frames say so. */
enum waker_flags {
	WAKER_CHOSEN = 1 << 0, /* the current process is profiled: the user's frames are there */
	WAKER_KERNEL = 1 << 1, /* a thread of the kernel, or none: the CPU was idle */
};

/* Why a thread left its CPU. */
enum away_state {
	AWAY_BLOCKED = 1, /* it waits until something happens, and a signal may interrupt that */
	AWAY_DISK,	  /* the same, without signals: the kernel's state D */
	AWAY_PREEMPTED,	  /* it could have run on */
	AWAY_THROTTLED,	  /* the same, and its cgroup has used up its quota */
	AWAY_STOPPED,	  /* by a signal or by a tracer */
};

/* A thread that is off the CPU, or on one: since is 0. */
struct away {
	__u64 since; /* ns, CLOCK_MONOTONIC */
	__s64 on;    /* ns on the CPU since recording began; less the time when it came, while it is on one: negative */
	__u64 born;  /* of the thread, ns, CLOCK_BOOTTIME: guards against a reused id */
	__u64 start; /* of its process, as in struct event_header */
	__u64 pc, sp; /* the user's registers */
	__u32 pid, tid, exec; /* as in struct event_header */
	__u32 state; /* enum away_state */
	__u8 comm[16];
};

#define MAX_FOLLOWED_THREADS 65536 /* threads */

enum seen_flags {
	SEEN_OUTSIDE = 1 << 0,	 /* ALLOCATION: not in a thread's buffer (TLAB) */
	SEEN_CONTENDED = 1 << 1, /* MONITOR: it was not free */
	SEEN_SPUN = 1 << 2,	 /* MONITOR: acquired while spinning */
	SEEN_COLLECTION = 1 << 3, /* PAUSE: garbage was collected */
	SEEN_CUT = 1 << 4,	 /* text did not fit */
};

/* Where an object is. */
enum heap_place {
	PLACE_UNKNOWN = 0,
	PLACE_YOUNG, /* where objects are allocated */
	PLACE_SURVIVOR,
	PLACE_OLD,
	PLACE_HUMONGOUS,
};

#define MAX_CAUSE 64 /* bytes of a name */

/* Why a VM stopped its Java threads. Names are cut at the end, or padded with zeroes; empty if unknown. */
struct pause_cause {
	__u8 operation[MAX_CAUSE]; /* of the VM: G1CollectForAllocation */
	__u8 collector[MAX_CAUSE]; /* the memory manager that collects garbage meanwhile: G1 Young Generation */
};

#define MAX_OBSERVED_VALUES 8
#define MAX_OBSERVED_TEXT 480 /* bytes */

/* Behind the frames of an EVENT_OBSERVED. text_len bytes of text follow it, padded to 8. */
struct observation {
	__u8 what;  /* enum observed */
	__u8 place; /* enum heap_place, of the object */
	__u8 flags; /* enum seen_flags */
	__u8 count; /* of values */
	__u16 text_len;
	__u8 failed; /* VALUES: bit i is set if value i could not be read */
	__u8 cut;    /* VALUES: bit i is set if value i is a text that did not fit */
	__u32 probe; /* what it was attached as: the cookie */
	__u32 every; /* executions that this one stands for */
	__u32 stops; /* how often the VM had stopped its Java threads: objects do not move between stops, if at all */
	__u32 pad2;
	__u64 object; /* its address, 0 if unknown */
	__u64 values[MAX_OBSERVED_VALUES];
};

#define MAX_CLASS_NAME 192
#define MAX_METHOD_NAME 96
#define MAX_SIGNATURE 160

struct code_load {
	struct event_header header;
	__u64 begin;	/* first instruction */
	__u32 size;	/* bytes, as announced */
	__u32 compile_id; /* 0 if the VM was not attached */
	__u16 class_len, name_len, signature_len; /* bytes used below */
	__u16 pad;
	__u8 class_name[MAX_CLASS_NAME];
	__u8 method_name[MAX_METHOD_NAME];
	__u8 signature[MAX_SIGNATURE];
};

struct process_event {
	struct event_header header;
	__u8 comm[16];
};

/* What sampled a call. */
enum call_engine {
	ENGINE_PAGE = 1,
	ENGINE_LISTENER,
	ENGINE_USDT,
	ENGINE_BRANCH,
};

/*
 * One sampled call. What callee and caller hold depends on the engine:
 *
 *              callee                                caller
 *   PAGE       the method's id, as registered        return address
 *   LISTENER   a frame: the entry point              a frame: the call site (both as in struct sample)
 *   BRANCH     where the call went                   address of the call instruction
 */
struct call {
	struct event_header header;
	__u64 callee, caller;
	__u64 burst;	   /* the calls of one burst of one thread carry the same number */
	__u32 class_epoch; /* times the VM had unloaded classes */
	__u32 attachment;  /* hotspot_process.serial, 0 if none; PAGE: burst_guest.serial */
	__u8 engine;	   /* enum call_engine */
	__u8 pad[3];
	__u32 callee_depth, caller_depth; /* LISTENER: as in struct sample, 0 where unknown */

	/* PAGE: where in its burst the sample is; 0 from engines that do not know */
	__u32 stride; /* calls from one sample to the next */
	__u32 made;   /* calls from the tick to this one */
	__u32 ticks;  /* of the thread, since the one that began the burst, that one included */
	__u64 spent;  /* ns of CPU time of the thread since that one */
};

#define MAX_CALL_NAME 96
#define MAX_CALL_FILE 192

/* Strings end with a zero byte and are cut to fit. */
struct named_call {
	struct event_header header;
	__u64 burst;
	__u32 caller_line; /* of the call */
	__u8 engine;	   /* enum call_engine */
	__u8 caller_unknown; /* 1: the probe does not say who called; 0 and no name of a caller: nobody did */
	__u8 language; /* as user space numbers them */
	__u8 pad;
	__u8 callee_class[MAX_CALL_NAME], callee_name[MAX_CALL_NAME];
	__u8 caller_class[MAX_CALL_NAME], caller_name[MAX_CALL_NAME];
	__u8 callee_file[MAX_CALL_FILE], caller_file[MAX_CALL_FILE];

	/* where in its burst the sample is */
	__u32 left;  /* samples to come */
	__u32 ticks; /* of the process since the one that began the burst, that one included */
	__u32 gaps;  /* from one call to the next so far, in which the thread kept its CPU */
	__u32 least; /* ns: the shortest of them, UINT_MAX if there is none */
	__u64 spent; /* ns in all of them: the guest's own work, and its way into the kernel and back */
};

/*
 * Per-CPU counters; user space sums them. Identities hold when no program runs:
 * ATTEMPTED == DELIVERED + all DROPPED, for samples, for events and for calls.
 *
 * Those before TICK_COUNTERS are counted at every sample, so they are together in few cache lines. All programs that walk
 * count those from STACK_COPIES to WORDS_SCANNED.
 */
enum counter {
	SAMPLES_ATTEMPTED,
	SAMPLES_DELIVERED,
	RING_BYTES,	 /* of delivered samples */
	NS_TOTAL,	 /* in the tick program */
	NS_JAVA,	 /* for samples of Java threads */
	SAMPLES_JAVA,	 /* of Java threads */
	FRAMES_JAVA,	 /* user frames of those */
	STACK_COPIES,	 /* pieces of stack copied */
	SEGMENT_MISSES,	 /* code segments looked up the slow way */
	WORDS_SCANNED,	 /* words of stacks that were searched for return addresses, as SCAN_BUDGET counts them */
	SAMPLES_LINKED,	 /* with SAMPLE_LINK */
	SAMPLES_PARTIAL, /* that share frames with the thread's previous one */
	TICKS_IDLE,
	TICKS_FILTERED,
	TICK_COUNTERS = 16,
	SAMPLES_DROPPED_RING_FULL = TICK_COUNTERS,
	SAMPLES_DROPPED_NO_SCRATCH, /* a CPU that came online after the maps were sized */
	EVENTS_ATTEMPTED, /* everything that is not a sample */
	EVENTS_DELIVERED,
	EVENTS_DROPPED_RING_FULL,
	EVENTS_DROPPED_BUSY, /* working memory in use: too many threads announce code at once */
	CODE_UNLOADS,	 /* announcements that code or classes went away */
	CALLS_ATTEMPTED, /* calls that an engine sampled */
	CALLS_DELIVERED,
	CALLS_DROPPED_RING_FULL,
	CALLS_DROPPED_NO_DRAFT, /* no memory to write one of a new thread */
	CALL_HITS,	 /* every time a call engine's program ran in a guest, sampled or not */
	CALL_HITS_REFUSED, /* beyond what was armed: a guest that writes into its page, or a late disarming */
	BURSTS_ARMED,
	BURSTS_SKIPPED,	 /* ticks that found the thread's burst unfinished, or no room to arm it */
	NS_CALLS,	 /* in the call engines' programs */
	STACKS_DISPLACED, /* previous stacks forgotten because another thread's took their place */
	PROBE_HITS,	 /* every time a probe of allocations, waits, values or page faults ran in a guest, recorded or not, and the last one of a pause */
	OBSERVATIONS_ATTEMPTED, /* == DELIVERED + all DROPPED; objects that are only counted (exact) are not among them */
	OBSERVATIONS_DELIVERED,
	OBSERVATIONS_DROPPED_RING_FULL,
	OBSERVATIONS_DROPPED_BUSY, /* working memory in use, by a program that was preempted on this CPU; a wait of a thread that went on unseen */
	OBSERVATIONS_DROPPED_TABLE_FULL, /* too many threads wait, or classes are counted, at once */
	NS_PROBES, /* in the programs of these probes */
	METHODS_CHANGED, /* Method structures that were met as another method than before */
	HITS_UNATTACHED, /* of PROBE_HITS, allocations and waits in processes whose VM was not attached yet: nothing was recorded */
	THREADS_REFUSED, /* times that a JavaThread found no room in the known_threads map */
	WAITS_SEEN,	/* times that a thread came back to a CPU, of those that were seen to leave: WAITS_THINNED + observations attempted of them, without those of wakers */
	WAITS_THINNED,	/* of these, the ones that were not drawn for a record */
	WAITS_REFUSED,	/* times that a thread was to be followed, and there were too many, or no memory for one */
	NS_WAITS_DRAWN, /* what the waits that were drawn stand for: of each the time, or the mean interval if that is longer */
	NS_WAITS_LOST,	/* of these, in records that were dropped */
	WAKINGS_SEEN,	/* with wakers: times that a thread was woken, of those that were seen to leave */
	WAKERS_DRAWN,	/* of these, the ones that a record of the waker was begun for */
	WAKERS_LOST,	/* of those records, the dropped ones */
	PROCESSES_REFUSED, /* children of chosen processes that found no room in the pids map: they are not sampled */
	COUNTER_COUNT,
};

/* ---- what user space sends the walker ---- */

#define MAX_CODE_HEAPS 4
#define MAX_ATTACHED 1024

/* CONTEXT_CHAIN, by hotspot_process.slot; MAX_ATTACHED for processes without a VM. */
struct chain_rate {
	__u32 every;	  /* walk one in so many samples whose link is known; 0: none */
	__u32 generation; /* a link is known in one generation: counted up when what was learned is forgotten */
};

struct code_heap {
	__u64 low, high; /* reserved bounds */
	__u64 segment_map;
};

enum hotspot_flags {
	HOTSPOT_CODE_OFFSET = 1 << 0,	  /* blob_code_begin is an int offset from the blob, not a pointer */
	HOTSPOT_FRAME_COMPLETE_16 = 1 << 1, /* _frame_complete_offset has 16 bits */
	HOTSPOT_DEOPT_OFFSET = 1 << 2,	  /* blob_deopt_handler is an int offset from the blob, not a pointer */
	HOTSPOT_UNLOAD_EVENTS = 1 << 3,	  /* the unload probes are attached: cached segments stay valid until then */
	HOTSPOT_TLS = 1 << 4,		  /* tls_module, tls_offset and java_thread_vtable are known */
	HOTSPOT_DEOPT_MH = 1 << 5,	  /* blob_deopt_mh_handler is known */
	HOTSPOT_THREADS = 1 << 6,	  /* java_thread_vtable, thread_os and os_thread_id are known; without HOTSPOT_TLS */
	HOTSPOT_CHUNKS = 1 << 7,	  /* where virtual threads have their frames on the heap is known */
	HOTSPOT_CHUNK_ARGSIZE = 1 << 8,	  /* chunk_bottom is a number of words from the chunk's end, not from its begin */
	HOTSPOT_COLOURED = 1 << 9,	  /* as HEAP_COLOURED */
};

/*
 * One attached HotSpot VM: everything the walker needs to know of its build and of this process. Names are those
 * of vmStructs; offsets are in bytes. Nothing about a JDK is compiled into the programs.
 */
struct hotspot_process {
	/* What every walk needs comes first, in few cache lines. */
	__u64 start_ticks; /* event_header.start in 10 ms, as /proc/PID/stat shows it: guards against a reused pid */
	__u32 serial;	/* unique among all attachments of this agent, never 0 */
	__u32 slot;	/* in the epochs map */
	__u32 flags;	/* enum hotspot_flags */
	__u32 segment_shift;			/* CodeHeap::_log2_segment_size */
	__u64 code_low, code_high;		/* CodeCache::_low_bound, _high_bound */
	__u64 call_stub_return; /* StubRoutines::_call_stub_return_address */
	__u64 return_barrier; /* where the last frame of a virtual thread returns if its callers are on the heap */
	__u64 enter_return; /* ContinuationEntry::_return_pc: where the word is that says where their first frame returns to */

	__u32 thread_anchor, thread_stack_base, thread_state; /* JavaThread */
	__u32 thread_in_java; /* JavaThread::_thread_state while it runs Java code: 8; from JDK 28 on 4 */
	__u32 anchor_sp, anchor_fp, anchor_pc;		      /* JavaFrameAnchor */
	__u32 wrapper_anchor;				      /* JavaCallWrapper::_anchor */
	__s32 entry_wrapper_offset; /* of the JavaCallWrapper* from rbp, bytes */
	__s32 interp_method, interp_sender_sp, interp_bcp; /* from rbp, bytes */
	__u32 method_const;	/* Method::_constMethod */
	__u32 const_method_size; /* sizeof(ConstMethod): bytecodes follow */
	__u32 const_method_code_size;
	__u32 block_header;			/* sizeof(HeapBlock) */
	__u64 may_redefine; /* bool: JvmtiExport::_can_hotswap_or_post_breakpoint; 0 if unknown */
	__u64 interpreter_low, interpreter_high; /* its code: calls from there push addresses that follow no call */

	__u64 java_thread_vtable;
	__u64 tls_module;	    /* of libjvm in this process */
	__u64 tls_offset;	    /* of Thread::_thr_current */
	__u32 thread_os;    /* JavaThread: OSThread* */
	__u32 os_thread_id; /* OSThread: int, the thread's id as gettid() returns it there */
	__u32 const_method_constants; /* ConstMethod::_constants */
	__u32 const_pool_size; /* sizeof(ConstantPool): the constants follow, 8 bytes each */
	__u32 method_name_shift; /* of the 16 bits of seen_method.shape that number the name's constant; 0 if unknown */
	__u32 pad;

	struct code_heap heaps[MAX_CODE_HEAPS]; /* unused ones have low == high == 0 */

	/* CodeBlob::_name points to one string for all blobs of a kind: the kinds by that pointer */
	__u64 name_nmethod, name_native, name_interpreter, name_vtable, name_adapter, name_continuation;
	__u32 blob_name, blob_code_begin, blob_frame_size, blob_frame_complete;
	__u32 blob_compile_id, blob_deopt_handler, blob_deopt_mh_handler, blob_orig_pc;

	/* The rest is about frames of virtual threads on the heap, with HOTSPOT_CHUNKS. */
	__u64 heap_low, heap_high; /* no object is outside */
	__u64 bad_colours; /* ZGC: where a word is with bits that a reference has none of if its object has not moved; 0 if unknown */
	__u64 address_mask; /* the bits of an object's address that say which one it is */
	__u64 oop_base, oop_mask; /* a reference is oop_base + ((word & oop_mask) << oop_shift), unless HOTSPOT_COLOURED */
	__u64 chunk_klass, chunk_klass_mask; /* a chunk's header has chunk_klass at chunk_klass_at, after that shift */
	__u32 chunk_klass_at, chunk_klass_shift;
	__u32 oop_shift, oop_colour_shift; /* the latter as in struct hotspot_heap */
	__u32 entry_cont; /* ContinuationEntry: the Continuation */
	__u32 cont_tail;  /* Continuation: the newest StackChunk */
	__u32 chunk_parent, chunk_cont, chunk_size, chunk_sp, chunk_bottom, chunk_pc; /* StackChunk; numbers are of words */
	__u32 chunk_stack; /* StackChunk: its words */

	/*
	 * ZGC: where objects are that have moved, until every reference to them has been updated (forward.bpf.h). The word at
	 * forward_tables[] + 8 * (offset in the heap >> forward_granule) leads to what is known of the objects of a page.
	 */
	__u32 forward_granule;
	__u32 forward_start, forward_shift, forward_length, forward_entries; /* of the latter */
	__u32 pad2;
	__u64 forward_tables[2]; /* one for each generation; 0 for none */
};

#define MAX_KNOWN_THREADS 16384

/* The id is the one that the thread itself sees: of the pid namespace that it was made in. */
struct known_thread_key {
	__u32 pid, own_tid;
};

/*
 * The JavaThread of a thread, where no symbol of libjvm leads to it (HOTSPOT_THREADS). It is only believed after it was compared
 * with what the JavaThread says of itself.
 */
struct known_thread {
	__u64 thread; /* JavaThread* */
	__u64 as_of;  /* ns, CLOCK_BOOTTIME: a thread that began later is another one with the same id */
	__u32 serial; /* hotspot_process.serial */
	__u32 pad;
};

#define NS_PER_START_TICK 10000000

#define CLASS_EPOCH_CHANGE (1 << 20)

/* Counted up by the unload probes, while the thread that unloads stands still, and by those of safepoints. */
struct epochs {
	__u32 code;    /* compilations unloaded */
	__u32 classes; /* classes unloaded, and CLASS_EPOCH_CHANGE for each Method structure that was met as another one */
	__u32 stops;   /* times that the VM stopped its Java threads */
	__u32 stopped; /* 1 while they stand still */
	__u32 collections; /* garbage collections begun */
	__u32 pad;
};

#define SEEN_METHODS (1 << 14)   /* a power of two */
#define SEEN_METHODS_PROBED 4    /* slots in a row that one method may be in */
#define SEEN_METHODS_HASH 0x9e3779b97f4a7c15ull

/*
 * What a Method structure was when a walk last read it. A class that is redefined leaves the structures of its old
 * methods to other methods, and no class is unloaded: that is only to be seen here.
 */
struct seen_method {
	__u64 method;	    /* Method* */
	__u64 const_method; /* Method::_constMethod */
	__u64 shape;	    /* 8 bytes of that: _code_size, _name_index, _signature_index, _method_idnum */
	__u64 name;	    /* its ConstantPool* and the Symbol* of its name, see read_method_name; 0 if they could not be read */
	__u32 serial;	    /* hotspot_process.serial, 0 if the slot is empty */
	__u32 since;	    /* epochs.classes from which on it is known to be that */
	__u32 met;	    /* epochs.classes when it was met last */
	__u32 pad;
};

enum heap_flags {
	HEAP_NARROW_KLASS = 1 << 0,  /* an object's class is a 32-bit number */
	HEAP_COMPACT_HEADER = 1 << 1, /* that is in the upper bits of a 64-bit word, from klass_bit on */
	HEAP_REGIONS = 1 << 2,	     /* region_* are known: G1 */
	HEAP_YOUNG_BOUNDS = 1 << 3,  /* young_* are known: Serial, Parallel */
	HEAP_NARROW_OOP = 1 << 4,    /* references in objects have 32 bits */
	HEAP_THREAD_HANDLE = 1 << 5, /* JavaThread::_threadObj points to a reference, which it is otherwise */
	HEAP_MONITOR_HANDLE = 1 << 6, /* ObjectMonitor::_object points to a reference, which it is otherwise */
	HEAP_PARK_BLOCKER = 1 << 7,  /* park_blocker is known */
	HEAP_CONCURRENT = 1 << 9,    /* the collector takes allocation buffers from threads at any stop: ZGC, Shenandoah */
	HEAP_COLOURED = 1 << 8,	     /* references have bits of the collector below the address: generational ZGC */
};

/* One attached HotSpot VM: what its objects look like. Offsets in bytes; names are those of vmStructs. */
struct hotspot_heap {
	__u32 serial; /* hotspot_process.serial: guards against a reused pid */
	__u32 flags;  /* enum heap_flags */
	__u64 narrow_klass_base, narrow_oop_base;
	__u32 narrow_klass_shift, narrow_oop_shift, klass_bit;
	__u32 oop_colour_shift; /* with HEAP_COLOURED; 0: 1 + the lowest bit that is set from bit 12 to 15 */
	__u32 monitor_owner; /* ObjectMonitor::_owner; 0 if that is not known */
	__u32 object_klass;  /* in an object */
	__u32 array_length;			      /* in an array */
	__u32 klass_name, klass_layout;		      /* Klass::_layout_helper */
	__u32 symbol_length, symbol_body;	      /* the length has 16 bits */
	__u32 tlab_start, tlab_end;		      /* in a JavaThread: the bounds of its allocation buffer */
	__u32 thread_object;			      /* JavaThread::_threadObj */
	__u32 park_blocker;			      /* in a java.lang.Thread, with HEAP_PARK_BLOCKER */
	__u32 monitor_object;			      /* ObjectMonitor::_object */
	__u32 region_type;			      /* in a region: int */
	__u64 region_table, region_shift; /* address >> shift is the index of the region's pointer */
	__u32 region_eden, region_survivor, region_old_mask, region_humongous_mask;
	__u64 young_low, young_high;
	__u64 largest_buffered; /* bytes: larger objects are never allocated in a thread's buffer; 0 if there is no such bound */
};

/* Where a USDT note says an argument is. */
enum operand_kind {
	OPERAND_NONE = 0,
	OPERAND_REGISTER,
	OPERAND_MEMORY,
	OPERAND_CONSTANT,
};

struct operand {
	__s64 displacement; /* or the constant */
	__u8 kind;	    /* enum operand_kind */
	__u8 reg;	    /* byte offset in struct pt_regs */
	__s8 size;	    /* bytes, negative if signed */
	__u8 pad[5];
};

#define MAX_PROBE_SITES 64

/* hotspot:compiled__method__load(class, len, name, len, signature, len, code, size); key: the attach cookie */
struct load_site {
	struct operand class_name, class_len, method_name, name_len, signature, signature_len, code, size;
};
