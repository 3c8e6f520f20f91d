/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What user space says of an attached HotSpot VM, and what the two note of it for each other. */
#pragma once

#include <linux/types.h>

#define MAX_CODE_HEAPS 4
#define MAX_ATTACHED 1024

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
	/* java_thread_vtable, thread_os and os_thread_id are known; without HOTSPOT_TLS */
	HOTSPOT_THREADS = 1 << 6,
	HOTSPOT_CHUNKS = 1 << 7,	  /* where virtual threads have their frames on the heap is known */
	/* chunk_bottom is a number of words from the chunk's end, not from its begin */
	HOTSPOT_CHUNK_ARGSIZE = 1 << 8,
	HOTSPOT_COLOURED = 1 << 9,	  /* as HEAP_COLOURED */
	/*
	 * blob_upcall_data is behind a reference, which is at blob_upcall_data itself or 8 bytes on
	 */
	HOTSPOT_UPCALL_BEHIND = 1 << 10,
};

/*
 * One attached HotSpot VM: everything the walker needs to know of its build and of this process.
 * Names are those of vmStructs; offsets are in bytes. Nothing about a JDK is compiled into the
 * programs.
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
	/*
	 * ContinuationEntry::_return_pc: where the word is that says where their first frame
	 * returns to
	 */
	__u64 enter_return;

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

	/*
	 * CodeBlob::_name points to one string for all blobs of a kind: the kinds by that pointer
	 */
	__u64 name_nmethod, name_native, name_interpreter, name_vtable, name_adapter, name_continuation, name_upcall;
	__u32 blob_name, blob_code_begin, blob_frame_size, blob_frame_complete;
	__u32 blob_compile_id, blob_deopt_handler, blob_deopt_mh_handler, blob_orig_pc;
	/*
	 * UpcallStub: int, where its frame holds a FrameData, from the stack pointer; 0 if unknown
	 */
	__u32 blob_upcall_data;
	__u32 upcall_anchor;	/* FrameData: the JavaFrameAnchor of the Java frames before */

	/* The rest is about frames of virtual threads on the heap, with HOTSPOT_CHUNKS. */
	__u64 heap_low, heap_high; /* no object is outside */
	/*
	 * ZGC: where a word is with bits that a reference has none of if its object has not moved;
	 * 0 if unknown
	 */
	__u64 bad_colours;
	__u64 address_mask; /* the bits of an object's address that say which one it is */
	/* a reference is oop_base + ((word & oop_mask) << oop_shift), unless HOTSPOT_COLOURED */
	__u64 oop_base, oop_mask;
	__u64 chunk_klass, chunk_klass_mask; /* a chunk's header has chunk_klass at chunk_klass_at, after that shift */
	__u32 chunk_klass_at, chunk_klass_shift;
	__u32 oop_shift, oop_colour_shift; /* the latter as in struct hotspot_heap */
	__u32 entry_cont; /* ContinuationEntry: the Continuation */
	__u32 cont_tail;  /* Continuation: the newest StackChunk */
	/* StackChunk; numbers are of words */
	__u32 chunk_parent, chunk_cont, chunk_size, chunk_sp, chunk_bottom, chunk_pc;
	__u32 chunk_stack; /* StackChunk: its words */

	/*
	 * ZGC: where objects are that have moved, until every reference to them has been updated
	 * (zforwarding.bpf.h). The word at forward_tables[] + 8 * (offset in the heap >>
	 * forward_granule) leads to what is known of the objects of a page.
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
 * The JavaThread of a thread, where no symbol of libjvm leads to it (HOTSPOT_THREADS). It is only
 * believed after it was compared with what the JavaThread says of itself.
 */
struct known_thread {
	__u64 thread; /* JavaThread* */
	__u64 as_of;  /* ns, CLOCK_BOOTTIME: a thread that began later is another one with the same id */
	__u32 serial; /* hotspot_process.serial */
	__u32 pad;
};

#define NS_PER_START_TICK 10000000

#define CLASS_EPOCH_CHANGE (1 << 20)

/*
 * Counted up by the unload probes, while the thread that unloads stands still, and by those of
 * safepoints.
 */
struct epochs {
	__u32 code;    /* compilations unloaded */
	/*
	 * classes unloaded, and CLASS_EPOCH_CHANGE for each Method structure that was met as
	 * another one
	 */
	__u32 classes;
	__u32 stops;   /* times that the VM stopped its Java threads */
	__u32 stopped; /* 1 while they stand still */
	__u32 collections; /* garbage collections begun */
	__u32 pad;
};

#define SEEN_METHODS (1 << 14)   /* a power of two */
#define SEEN_METHODS_PROBED 4    /* slots in a row that one method may be in */
#define SEEN_METHODS_HASH 0x9e3779b97f4a7c15ull

/*
 * What a Method structure was when a walk last read it. A class that is redefined leaves the
 * structures of its old methods to other methods, and no class is unloaded: that is only to be seen
 * here.
 */
struct seen_method {
	__u64 method;	    /* Method* */
	__u64 const_method; /* Method::_constMethod */
	__u64 shape;	    /* 8 bytes of that: _code_size, _name_index, _signature_index, _method_idnum */
	/*
	 * its ConstantPool* and the Symbol* of its name, see read_method_name; 0 if they could not
	 * be read
	 */
	__u64 name;
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
	/* the collector takes allocation buffers from threads at any stop: ZGC, Shenandoah */
	HEAP_CONCURRENT = 1 << 9,
	HEAP_COLOURED = 1 << 8,	     /* references have bits of the collector below the address: generational ZGC */
	HEAP_MOUNTED = 1 << 10,	     /* thread_current and thread_id are known: JDK 21 and later */
};

/*
 * One attached HotSpot VM: what its objects look like. Offsets in bytes; names are those of
 * vmStructs.
 */
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
	/* in a JavaThread: the bounds of its allocation buffer, and what is used of it */
	__u32 tlab_start, tlab_top, tlab_end;
	/*
	 * in a JavaThread: 64 bits, the bytes that it has allocated in earlier buffers and outside;
	 * 0 if unknown
	 */
	__u32 thread_allocated;
	__u32 thread_object;			      /* JavaThread::_threadObj */
	__u32 park_blocker;			      /* in a java.lang.Thread, with HEAP_PARK_BLOCKER */
	/*
	 * JavaThread::_vthread, which is what _threadObj is, or of the virtual thread that runs
	 * there
	 */
	__u32 thread_current;
	__u32 thread_id;      /* in a java.lang.Thread: its number */
	__u32 monitor_object;			      /* ObjectMonitor::_object */
	__u32 region_type;			      /* in a region: int */
	__u64 region_table, region_shift; /* address >> shift is the index of the region's pointer */
	__u32 region_eden, region_survivor, region_old_mask, region_humongous_mask;
	__u64 young_low, young_high;
	__u64 thread_list;	/* static: ThreadsList*, or the first JavaThread* if list_threads is 0; 0 if unknown */
	__u32 list_length, list_threads; /* ThreadsList: 32 bits, JavaThread** */
	__u32 thread_next;	/* JavaThread: the next one, where the list is a linked one */
	__u32 thread_os, os_thread_id; /* as in struct hotspot_process */
	__u32 pad;
	/*
	 * bytes: larger objects are never allocated in a thread's buffer; 0 if there is no such
	 * bound
	 */
	__u64 largest_buffered;
};
