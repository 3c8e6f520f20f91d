/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Samples: user stacks, and how much of one a record has. */
#pragma once

#include "record/event.h"

#define MAX_USER_FRAMES 1024
#define ROOT_FRAMES 124 /* of those, outermost ones of a deeper stack */
/*
 * of a stack whose outermost frames are looked for: five times what fits, so a walk takes five
 * times as long
 */
#define MAX_WALKED_FRAMES 5120
#define MAX_KERNEL_FRAMES 127
#define MAX_FRAMES (MAX_USER_FRAMES + MAX_KERNEL_FRAMES)
/* of a stack that a thread's next sample may share: partial walks reach further */
#define MAX_KEPT_FRAMES (2 * MAX_USER_FRAMES)

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
	/*
	 * Java: SCAN_BUDGET words were searched for return addresses or LOOKUP_BUDGET read of
	 * headers of code and of chunks, and more would have to be
	 */
	END_SCAN,
	END_DEEP,	  /* MAX_WALKED_FRAMES */
	END_THAW,	  /* Java: frames of a virtual thread are being copied to its stack, or from there */
	END_TIME,	  /* the walk took too long: walk_ns */
	END_RULE,	  /* native: the way to the caller is none that unwind tables can state */
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
 * Frame 0 holds the sampled pc, the others hold return addresses. Frame 1 may be one with bit 59,
 * of code of Go: what was on top of the stack follows a call, and is the return address of frame 0
 * if that has no frame of its own. If it has one, nothing is there.
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

/* How much of a user stack a sample has, if not all of it. */
enum context_mode {
	CONTEXT_PARTIAL = 1, /* what the thread's previous sample did not have: SAMPLE_SHARED */
	CONTEXT_CHAIN,	     /* two frames where those are known already (SAMPLE_LINK), else all of it: SAMPLE_DEPTHS */
};

/* A tag of a link stands in known_links at tag >> LINK_SLOT_SHIFT, modulo their number. */
enum link_tags {
	LINK_STEADY = 1,
	LINK_SLOT_SHIFT = 40,
	KNOWN_LINKS = 1 << 16, /* a power of two; links with one slot in common displace each other */
};

/*
 * Depths are __u32: bytes from the base of the thread's stack down to the frame's canonical frame
 * address, which is the stack pointer of its caller before the call. 0 where that is not known.
 * Before them, unless the sample is a SAMPLE_LINK, stands the __u64 tag of its link, 0 if it has
 * none: without LINK_STEADY if it was walked for that.
 *
 * Where contexts are checked every stack is there to its root; flags and struct shared_stack are
 * what they would have been.
 */
struct sample {
	struct event_header header;
	/*
	 * frames[]: the user's first, innermost first; then the kernel's pcs. With left_out, the
	 * last ROOT_FRAMES of the user's are a ring: the innermost one of them is left_out %
	 * ROOT_FRAMES words behind its beginning.
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
 * A sample whose outermost user frames are those that another one had, which had the tag base: all
 * of that one's but the innermost, or so many of the outermost that the rest can be divided by
 * SUFFIX_STEP. The thread's name, class_epoch and attachment are as they were. Own frames follow,
 * as in struct sample: at least one unless the stack has none. The last of the user's is next to
 * the known ones.
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

/*
 * The frames of a stack that a thread's previous sample had, too. Behind the frames, with
 * SAMPLE_SHARED.
 */
struct shared_stack {
	__u32 serial; /* of this sample among its thread's, never 0 */
	__u32 base;   /* serial of the sample that has the rest; 0 if this one has all of its frames */
	__u32 frames; /* so many of the base's outermost frames follow this sample's own; less than MAX_KEPT_FRAMES */
	__u32 own;    /* user frames of this sample, innermost first, that are not taken from the base */
};

/* CONTEXT_CHAIN, by hotspot_process.slot; MAX_ATTACHED for processes without a VM. */
struct chain_rate {
	__u32 every;	  /* walk one in so many samples whose link is known; 0: none */
	__u32 generation; /* a link is known in one generation: counted up when what was learned is forgotten */
};
