// Package cause says what a thread that was off the CPU waited for, from its stack and from the
// state in which it left.
//
//	what, inner := cause.Classify(state, thread, stack, enters) // innermost frame first
//	stack = stack[inner:]                 // without the scheduler
//
// The rules are tables of functions: the kernel's say what kind of wait it was, the program's who
// waits that way.
package cause

import (
	"slices"
	"strings"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// States of a thread that is off the CPU.
const (
	Blocked         = "blocked"         // until something happens
	Uninterruptible = "uninterruptible" // likewise, not even for a signal: the kernel's state D
	Runnable        = "runnable"        // it waits for a CPU
	Throttled       = "throttled"       // likewise, as its cgroup has used up its quota
	Stopped         = "stopped"         // stopped by a signal, a tracer or a freezer
)

// Running is the state, and the cause, of time in which a thread used a CPU.
const Running = "running"

// Causes of waits. Runnable, throttled and stopped threads have their state as the cause.
const (
	Sleep      = "sleep"       // for a time
	Monitor    = "monitor"     // entry into a Java monitor
	Lock       = "lock"        // a lock or semaphore of java.util.concurrent
	Wait       = "wait"        // Object.wait
	Park       = "park"        // LockSupport.park for anything but a lock: a condition, a queue, a future
	Safepoint  = "safepoint"   // the VM stops its Java threads
	VM         = "vm"          // a thread of the VM for work, or a lock of the VM
	VMCall     = "vm call"     // Java code in a call of the VM: for memory, a class, or a compilation
	Futex      = "futex"       // a lock or condition variable in user space
	Poll       = "poll"        // until one of several files is ready: epoll, poll, select, io_uring
	Socket     = "socket"      // receive, send, accept, connect
	Pipe       = "pipe"        // read or write one, or a FIFO
	Terminal   = "terminal"    // read or write one
	Disk       = "disk"        // storage, or a file system
	PageFault  = "page fault"  // memory that has to be read from storage, or whose map is locked
	Process    = "process"     // the end of a child
	Signal     = "signal"      // sigwait, sigsuspend, pause
	FileLock   = "file lock"   // flock, fcntl
	KernelLock = "kernel lock" // a mutex or semaphore of the kernel
	IPC        = "ipc"         // a message queue or semaphore of System V or POSIX that the kernel has
	Memory     = "memory"      // until the kernel has freed some: reclaim, memory.high, the OOM killer
	Worker     = "worker"      // a kernel worker of the process, such as io_uring's, for work
	Idle       = "idle"        // whatever it waits for, the thread has nothing to do: see IsIdle
	Other      = "other"       // none of these
	Unknown    = "unknown"     // the stack is not known, or not named where it says what the thread waits for
)

// All are all causes of waits.
var All = []string{
	Runnable, Throttled, Stopped, Sleep, Monitor, Lock, Wait, Park, Safepoint, VM, VMCall, Futex, Poll, Socket, Pipe,
	Terminal, Disk, PageFault,
	Process, Signal, FileLock, KernelLock, IPC, Memory, Worker, Idle, Other, Unknown,
}

// A rule says what a function's presence in a stack means. Names match as prefixes up to the end of
// a word: compilers append suffixes such as .isra.0, C++ parameters.
type rule struct {
	names string // separated by spaces
	cause string
}

// kernelRules are of functions of the kernel; the innermost frame that has a rule counts. Helpers
// that many waits share, such as schedule_timeout or wait_woken, have none.
var kernelRules = compile([]rule{
	{"hrtimer_nanosleep common_nsleep do_nanosleep alarm_timer_nsleep", Sleep},
	{"futex_wait __futex_wait do_futex futex_wait_queue futex_wait_queue_me futex_wait_requeue_pi futex_lock_pi " +
		"futex_do_wait futex_wait_multiple", Futex},
	{"ep_poll do_epoll_wait do_sys_poll do_poll do_select core_sys_select io_cqring_wait eventfd_read timerfd_read " +
		"timerfd_read_iter signalfd_read signalfd_read_iter " +
		"inotify_read fanotify_read fuse_dev_do_read read_events perf_read", Poll},
	{"sk_wait_data tcp_recvmsg tcp_recvmsg_locked tcp_sendmsg tcp_sendmsg_locked sk_stream_wait_memory " +
		"sk_stream_wait_connect inet_csk_accept inet_csk_wait_for_connect " +
		"inet_wait_for_connect __inet_stream_connect inet_stream_connect unix_stream_read_generic " +
		"unix_stream_data_wait unix_stream_sendmsg unix_stream_connect unix_accept " +
		"unix_wait_for_peer unix_dgram_sendmsg __skb_wait_for_more_packets skb_wait_for_more_packets " +
		"__skb_recv_datagram __unix_dgram_recvmsg __skb_recv_udp udp_recvmsg " +
		"sock_alloc_send_pskb netlink_recvmsg packet_recvmsg sock_recvmsg sock_sendmsg __sys_accept4 do_accept " +
		"vsock_connectible_recvmsg vsock_accept sk_wait_event __lock_sock sk_stream_wait_close", Socket},
	{"pipe_read pipe_write anon_pipe_read anon_pipe_write fifo_pipe_read fifo_pipe_write pipe_wait_readable " +
		"pipe_wait_writable wait_for_partner fifo_open splice_pipe_to_pipe", Pipe},
	{"n_tty_read n_tty_write tty_read tty_wait_until_sent", Terminal},
	{"io_schedule io_schedule_timeout folio_wait_bit folio_wait_bit_common folio_wait_writeback wait_on_page_bit " +
		"__wait_on_buffer wait_on_buffer bit_wait_io blk_mq_get_tag rq_qos_wait " +
		"blkdev_issue_flush submit_bio_wait jbd2_log_wait_commit jbd2_journal_commit_transaction " +
		"wait_transaction_locked add_transaction_credits ext4_sync_file xfs_file_fsync " +
		"xfs_log_force_seq xlog_wait_on_iclog xfs_buf_iowait btrfs_sync_file btrfs_commit_transaction " +
		"btrfs_wait_ordered_range wait_current_trans balance_dirty_pages __filemap_fdatawait_range " +
		"request_wait_answer fuse_simple_request __fuse_simple_request rpc_wait_bit_killable nfs_wait_bit_killable " +
		"p9_client_rpc io_wq_put_and_exit " +
		"iomap_dio_rw blkdev_direct_IO read_folio filemap_read vfs_fsync_range wb_wait_for_completion sync_inodes_sb " +
		"ksys_sync start_this_handle d_alloc_parallel " +
		"ceph_mdsc_wait_request ceph_osdc_wait_request", Disk},
	{"do_wait do_wait4 kernel_wait4 kernel_waitid wait_for_vfork_done kernel_clone _do_fork", Process}, // vfork,
	{"do_sigtimedwait sigsuspend __x64_sys_pause __arm64_sys_pause do_sys_pause", Signal},
	{"locks_lock_inode_wait flock_lock_inode_wait posix_lock_inode_wait do_lock_file_wait fcntl_setlk", FileLock},
	{"rwsem_down_read_slowpath rwsem_down_write_slowpath __mutex_lock __down_read __down_common percpu_rwsem_wait " +
		"__percpu_down_read rt_mutex_slowlock " +
		"__wait_rcu_gp wait_rcu_gp synchronize_rcu synchronize_rcu_normal synchronize_rcu_expedited exp_funnel_lock " +
		"rcu_barrier", KernelLock},
	{"io_wq_worker io_sq_thread vhost_task_fn", Worker},
	{"do_msgrcv do_msgsnd ksys_msgrcv wq_sleep do_mq_timedreceive do_mq_timedsend __do_semtimedop do_semtimedop", IPC},
	{"reclaim_throttle throttle_direct_reclaim mem_cgroup_handle_over_high __mem_cgroup_handle_over_high " +
		"mem_cgroup_oom_synchronize", Memory},
	{"do_exit do_group_exit do_coredump vfs_coredump", Other}, // in get_signal as well
	// Compilers inline do_freezer_trap, of cgroup.freeze, into get_signal.
	{"do_signal_stop ptrace_stop do_freezer_trap get_signal __refrigerator", Stopped},
})

// faultRules are of functions of the kernel that handle page faults: whatever a thread waits for
// there.
var faultRules = compile([]rule{{"handle_mm_fault do_user_addr_fault exc_page_fault do_page_fault " +
	"lock_mm_and_find_vma __do_fault", PageFault}})

// userRules are of functions of Java and of the VM: the innermost frame that has a rule counts, if
// the kernel's say that the thread waits for others or for a time.
var userRules = compile([]rule{
	{"java.lang.Object.wait java.lang.Object.wait0", Wait},
	{"java.lang.Thread.sleep java.lang.Thread.sleep0 java.lang.Thread.sleepNanos java.lang.Thread.sleepNanos0", Sleep},
	{"jdk.internal.misc.Unsafe.park sun.misc.Unsafe.park", Park},
	// Stubs: of C2, then of C1, by JDK.
	{"_complete_monitor_locking_Java complete_monitor_locking_blob complete_monitor_locking monitorenter_nofpu " +
		"monitorenter " +
		"ObjectMonitor::enter ObjectMonitor::enter_with_contention_mark ObjectMonitor::EnterI " +
		"ObjectMonitor::enter_internal ObjectMonitor::ReenterI ObjectSynchronizer::enter " +
		"LightweightSynchronizer::enter SharedRuntime::complete_monitor_locking_C " +
		"SharedRuntime::monitor_enter_helper InterpreterRuntime::monitorenter Runtime1::monitorenter", Monitor},
	// Stubs of compiled code come here for a safepoint only, by JDK: the VM's frames may be
	// missing.
	{"SafepointBlob polling_page_safepoint_handler polling_page_return_handler " +
		"polling_page_vectors_safepoint_handler " +
		"SafepointSynchronize::block SafepointMechanism::process SafepointMechanism::process_if_requested_slow " +
		"SafepointSynchronize::handle_polling_page_exception " +
		"ThreadSafepointState::handle_polling_page_exception", Safepoint},
	{"Monitor::wait Monitor::wait_without_safepoint_check Mutex::lock Mutex::lock_without_safepoint_check " +
		"Mutex::lock_contended PlatformMonitor::wait Monitor::IWait Monitor::ILock " +
		"WatcherThread::sleep WatcherThread::run VMThread::loop VMThread::run GangWorker::loop WorkerThread::run " +
		"CompileBroker::compiler_thread_loop CompileQueue::get", VM},
})

// parkRules are of the methods that call Unsafe.park: the innermost that parks or sleeps counts, or
// else a lock. Latches and conditions use the same methods as locks, further in: they count.
var parkRules = compile([]rule{
	{"java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject. " +
		"java.util.concurrent.locks.AbstractQueuedLongSynchronizer$ConditionObject. " +
		"java.util.concurrent.CountDownLatch.await " +
		"java.util.concurrent.FutureTask.awaitDone java.util.concurrent.CompletableFuture$Signaller.block", Park},
	{"java.lang.VirtualThread.sleepNanos", Sleep}, // one that cannot give up its carrier parks it
	{"java.util.concurrent.locks.AbstractQueuedSynchronizer. " +
		"java.util.concurrent.locks.AbstractQueuedLongSynchronizer. java.util.concurrent.locks.StampedLock. " +
		"java.util.concurrent.locks.ReentrantLock. java.util.concurrent.locks.ReentrantReadWriteLock " +
		"java.util.concurrent.Semaphore.", Lock},
})

// vmThreads are how names of threads begin that HotSpot makes for itself. Their stacks often end in
// a library without frame pointers.
var vmThreads = [...]string{
	"VM Thread", "VM Periodic", "GC Thread", "GC task thread", "G1 ", "ParGC", "Gang worker", "CMS ", "Concurrent Mark",
	"ZDriver", "ZDirector", "ZWorker", "ZStat",
	"ZUncommitter", "ZUnmapper", "XDriver", "XDirector", "XWorker", "XStat", "XUncommitter", "XUnmapper",
	"RuntimeWorker", "Shenandoah", "AsyncLog Thread", "C1 CompilerThre", "C2 CompilerThre", "Compiler",
	"Sweeper thread", "Service Thread", "Monitor Deflati", "Notification Th",
	"Signal Dispatch", "Attach Listener", "StringDedup", "JFR ",
}

// A table has the causes of names.
type table struct {
	rules    []rule
	exact    map[string]string
	prefixes []rule // rules for names that end with a dot: all methods of a class
}

func compile(rules []rule) table {
	t := table{rules: rules, exact: map[string]string{}}
	for _, r := range rules {
		for name := range strings.FieldsSeq(r.names) {
			if strings.HasSuffix(name, ".") {
				t.prefixes = append(t.prefixes, rule{name, r.cause})
			} else {
				t.exact[name] = r.cause
			}
		}
	}
	return t
}

// lookup returns the cause of a function, "" if there is no rule.
func (t *table) lookup(function string) string {
	if c, ok := t.exact[function]; ok {
		return c
	}
	for _, p := range t.prefixes {
		if strings.HasPrefix(function, p.names) {
			return p.cause
		}
	}
	return ""
}

// scheduler are the functions through which a thread leaves its CPU: from them inwards frames are
// of no interest.
var scheduler = map[string]bool{"__schedule": true, "schedule": true, "preempt_schedule_common": true,
	"preempt_schedule_irq": true, "__cond_resched": true}

// maxScheduler bounds how far in a stack the scheduler is looked for: programs that follow it are
// further in.
const maxScheduler = 16

// Classify returns the cause of a thread's wait, and how many of the innermost frames are the
// scheduler's. The stack begins with the innermost frame, and has the kernel's frames before the
// user's. enters says that the innermost frame of Java is interpreted, at a place where it enters a
// monitor: the interpreter calls the VM for it, whose frames may be missing.
func Classify(state, thread string, stack []symbol.Symbol, enters bool) (cause string, inner int) {
	kernel := 0
	for kernel < len(stack) && stack[kernel].Kind() == symbol.KindKernel {
		kernel++
	}
	for i := range min(kernel, maxScheduler) {
		if scheduler[plain(stack[i].Function())] {
			inner = i + 1
		}
	}
	switch state {
	case Runnable, Throttled, Stopped:
		return state, inner
	}
	for i := inner; i < kernel && cause == ""; i++ {
		cause = kernelRules.lookup(plain(stack[i].Function()))
	}
	for i := inner; i < kernel; i++ {
		if faultRules.lookup(plain(stack[i].Function())) != "" {
			return PageFault, inner
		}
	}
	switch {
	case cause == "" && kernel > inner:
		return Other, inner
	case cause == "", cause == Futex, cause == Sleep:
		if by := ofUser(stack[kernel:]); by != "" {
			return by, inner
		}
	}
	switch {
	case cause == "":
		return Other, inner
	case cause == Futex && calledBy(stack[kernel:]) == javaCode:
		if enters {
			return Monitor, inner
		}
		return VMCall, inner
	// It is a wrapper of Thread.sleep or of Object.wait, or any other Java code.
	case cause == Futex && calledBy(stack[kernel:]) == unnamedCode:
		return Unknown, inner
	case (cause == Futex || cause == Sleep) && ofVM(thread):
		return VM, inner
	}
	return cause, inner
}

// OfThread returns the cause of a wait of which the stack is not known.
func OfThread(state, thread string) string {
	switch {
	case state != Blocked && state != Uninterruptible:
		return state
	case ofVM(thread):
		return VM
	}
	return Unknown
}

// ofVM reports whether a thread with that name is HotSpot's own.
func ofVM(thread string) bool {
	return slices.ContainsFunc(vmThreads[:], func(name string) bool { return strings.HasPrefix(thread, name) })
}

// What calls the native frames at the inner end of a stack.
const (
	nativeCode  = iota // it has no others, or what is behind them is not known
	javaCode           // a method
	unnamedCode        // code of the VM that has no name: it was gone, or its process, before that could be read
)

// calledBy returns what the innermost frame is that is neither native nor a stub.
func calledBy(stack []symbol.Symbol) int {
	for _, f := range stack {
		switch f.Kind() {
		case symbol.KindJIT, symbol.KindInterpreted:
			return javaCode
		case symbol.KindUnknown:
			if at := f.Value().Mapping; at != (unique.Handle[symbol.Mapping]{}) &&
				strings.HasPrefix(at.Value().File, vmCode) {
				return unnamedCode
			}
		case symbol.KindMarker:
			if f.Function() == staleCode {
				return unnamedCode
			}
			return nativeCode
		}
	}
	return nativeCode
}

const (
	vmCode    = "[jit:"   // how the names of mappings begin that are a VM's code
	staleCode = "[stale]" // stands for a frame whose code was gone, as its VM was
)

// maxWaiting bounds how many frames of the program are looked at: waits are at the end of a stack.
const maxWaiting = 24

// ofUser returns who waits, by the program's frames; "" if there is no rule.
func ofUser(stack []symbol.Symbol) (cause string) {
	for i := range min(len(stack), maxWaiting) {
		function := plain(stack[i].Function())
		switch cause {
		case "":
			if cause = userRules.lookup(function); cause != "" && cause != Park {
				return cause
			}
		default: // parked, perhaps for a lock
			switch by := parkRules.lookup(function); {
			case by == Park, by == Sleep:
				return by
			case by != "":
				cause = by
			}
		}
	}
	return cause
}

// plain returns the name of a function or stub without what compilers append, and without
// parameters.
func plain(function string) string {
	if stub, ok := strings.CutPrefix(function, "[stub: "); ok {
		stub = strings.TrimSuffix(stub, "]")
		for _, compiler := range [...]string{"C1 Runtime ", "C2 Runtime ", "Shared Runtime "} { // prefixes in JDK 25
			stub = strings.TrimPrefix(stub, compiler)
		}
		stub, _, _ = strings.Cut(stub, " ")
		function = strings.TrimSuffix(stub, "_blob")
	}
	if i := strings.IndexByte(function, '('); i > 0 {
		function = function[:i]
	}
	for _, suffix := range [...]string{".isra", ".constprop", ".part", ".cold"} {
		if i := strings.Index(function, suffix); i > 0 {
			function = function[:i]
		}
	}
	return function
}
