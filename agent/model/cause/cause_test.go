package cause

import (
	"slices"
	"strings"
	"testing"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// stackOf makes a stack, innermost first: kernel frames, a bar, and the program's.
func stackOf(text string) (stack []symbol.Symbol) {
	kernel, user, _ := strings.Cut(text, "|")
	for name := range strings.FieldsSeq(kernel) {
		stack = append(stack, symbol.Intern(symbol.Frame{Function: name, Kind: symbol.KindKernel}))
	}
	for name := range strings.FieldsSeq(user) {
		kind := symbol.KindNative
		if strings.Contains(name, ".") {
			kind = symbol.KindJIT
		}
		if strings.HasPrefix(name, "[jit:") {
			kind = symbol.KindUnknown
		}
		stack = append(stack, symbol.Intern(symbol.Frame{Function: strings.ReplaceAll(name, "~", " "), Kind: kind,
			Mapping: unique.Make(symbol.Mapping{File: name})}))
	}
	return stack
}

func TestOf(t *testing.T) {
	const switching = "bpf_prog_1234_thread_goes_on bpf_trace_run1 __traceiter_sched_exit_tp __schedule schedule "
	const futex = switching + "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex do_syscall_64 " +
		"entry_SYSCALL_64_after_hwframe |"
	const park = futex + "pthread_cond_wait Parker::park(bool,long) Unsafe_Park jdk.internal.misc.Unsafe.park " +
		"java.util.concurrent.locks.LockSupport.park "
	const acquire = "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire "
	for _, tt := range []struct{ name, state, stack, want, thread string }{
		{"nothing is known", Blocked, "", Other, ""},
		{"preempted", Runnable, switching + "irqentry_exit |Main.work", Runnable, ""},
		{"quota", Throttled, switching + "|", Throttled, ""},
		{"SIGSTOP", Stopped, switching + "do_signal_stop get_signal |Main.work", Stopped, ""},
		{"sleep of a native program", Blocked, switching + "do_nanosleep hrtimer_nanosleep |nanosleep main", Sleep, ""},
		{"lock of a native program", Blocked, futex + "__lll_lock_wait main", Futex, ""},
		{"Thread.sleep", Blocked, futex + "PlatformEvent::park_nanos(long) JVM_Sleep java.lang.Thread.sleep0 " +
			"java.lang.Thread.sleep Main.run", Sleep, ""},
		{"Object.wait", Blocked, futex + "ObjectMonitor::wait(long,bool,JavaThread*) JVM_MonitorWait " +
			"java.lang.Object.wait0 java.lang.Object.wait", Wait, ""},
		{"monitor", Blocked, futex + "PlatformEvent::park() ObjectMonitor::enter(JavaThread*) Main.add", Monitor, ""},
		{"monitor after Object.wait", Blocked, futex +
			"ObjectMonitor::ReenterI(JavaThread*,ObjectWaiter*) JVM_MonitorWait java.lang.Object.wait0", Monitor, ""},
		{"lock", Blocked, park + acquire + "java.util.concurrent.locks.ReentrantLock.lock Main.add", Lock, ""},
		{"latch", Blocked, park + acquire + "java.util.concurrent.CountDownLatch.await Main.main", Park, ""},
		{"queue", Blocked, park + "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await " +
			"java.util.concurrent.LinkedBlockingQueue.take", Park, ""},
		{"future", Blocked, park + "java.util.concurrent.CompletableFuture$Signaller.block", Park, ""},
		{"virtual thread that sleeps on its carrier", Blocked, park[:strings.Index(park, "java.")] +
			"java.lang.VirtualThread.parkOnCarrierThread java.lang.VirtualThread.parkNanos " +
			"java.lang.VirtualThread.sleepNanos java.lang.Thread.sleep Main.run", Sleep, ""},
		{"a call of the VM", Blocked, futex + "__futex_abstimed_wait_common Main.run", VMCall, ""},
		{"a wrapper without a name", Blocked, futex + "__futex_abstimed_wait_common [jit:HotSpot] Main.main", Unknown,
			""},
		{"a wrapper without a name in a method of the class library", Blocked, futex +
			"__futex_abstimed_wait_common [jit:HotSpot] java.lang.Thread.sleep Main.main", Sleep, ""},
		{"safepoint", Blocked, futex + "SafepointSynchronize::block(JavaThread*) Main.loop", Safepoint, ""},
		{"safepoint, libjvm without frame pointers", Blocked, futex +
			"__futex_abstimed_wait_common [stub:~SafepointBlob] Main.loop", Safepoint, ""},
		{"safepoint of JDK 25", Blocked, futex + "[stub:~Shared~Runtime~polling_page_return_handler_blob] Main.loop",
			Safepoint, ""},
		{"safepoint of JDK 28", Blocked, futex +
			"[stub:~polling_page_safepoint_handler_blob~(shared~runtime)] Main.loop", Safepoint, ""},
		{"collector's thread", Blocked, futex + "Monitor::wait_without_safepoint_check(long) GangWorker::loop()", VM,
			""},
		{"collector's thread without frame pointers", Blocked, futex + "__futex_abstimed_wait_common", VM, "G1 Conc#0"},
		{"ParallelGC's thread of JDK 8", Blocked, futex + "__futex_abstimed_wait_common", VM, "GC task thread#"},
		{"ZGC's thread", Blocked, futex + "__futex_abstimed_wait_common", VM, "RuntimeWorker#0"},
		{"collector's thread sleeps", Blocked, switching + "do_nanosleep hrtimer_nanosleep |clock_nanosleep", VM,
			"Shenandoah Cont"},
		{"thread of a native program", Blocked, futex + "__futex_abstimed_wait_common", Futex, "worker"},
		{"monitor, libjvm without frame pointers", Blocked, futex +
			"__futex_abstimed_wait_common [stub:~_complete_monitor_locking_Java] Main.add", Monitor, ""},
		{"monitor, compiled by C1 of JDK 25", Blocked, futex +
			"__futex_abstimed_wait_common [stub:~C1~Runtime~monitorenter_nofpu_blob] Main.add", Monitor, ""},
		{"monitor, compiled by C2 of JDK 25", Blocked, futex +
			"__futex_abstimed_wait_common [stub:~C2~Runtime~complete_monitor_locking_blob] Main.add", Monitor, ""},
		{"interpreted code that enters a monitor", Blocked, futex + "__futex_abstimed_wait_common Main.add:enters",
			Monitor, "main"},
		{"interpreted code that sleeps where one enters", Blocked, futex + "java.lang.Thread.sleep0 Main.add:enters",
			Sleep, ""},
		{"interpreted code in the VM", Blocked, futex + "__futex_abstimed_wait_common Main.add", VMCall, "main"},
		{"epoll", Blocked, switching + "schedule_hrtimeout_range ep_poll do_epoll_wait |epoll_wait " +
			"sun.nio.ch.EPoll.wait", Poll, ""},
		{"socket", Blocked, switching + "schedule_timeout sk_wait_data.part.0 tcp_recvmsg_locked |recv " +
			"java.net.SocketInputStream.read", Socket, ""},
		{"pipe", Blocked, switching + "anon_pipe_read vfs_read |read", Pipe, ""},
		{"fsync", Uninterruptible, switching +
			"io_schedule folio_wait_bit_common folio_wait_writeback ext4_sync_file |fsync", Disk, ""},
		{"page is read from disk", Uninterruptible, switching +
			"io_schedule folio_wait_bit_common filemap_fault __do_fault handle_mm_fault exc_page_fault |Main.read",
			PageFault, ""},
		{"child", Blocked, switching + "do_wait kernel_wait4 |wait4", Process, ""},
		{"child of vfork, wait_for_vfork_done inlined", Uninterruptible, switching +
			"schedule_timeout __wait_for_common wait_for_completion_state kernel_clone __do_sys_vfork |vfork", Process,
			""},
		{"cgroup.freeze, do_freezer_trap inlined", Blocked, switching +
			"get_signal arch_do_signal_or_restart exit_to_user_mode_loop |Main.work", Stopped, ""},
		{"killed", Blocked, switching + "schedule_timeout do_exit do_group_exit get_signal |Main.work", Other, ""},
		{"System V semaphore", Blocked, switching +
			"schedule_hrtimeout_range_clock __do_semtimedop do_semtimedop |semtimedop", IPC, ""},
		{"System V queue", Blocked, switching + "do_msgrcv do_syscall_64 |msgrcv", IPC, ""},
		{"POSIX queue", Blocked, switching +
			"schedule_hrtimeout_range_clock wq_sleep do_mq_timedreceive |mq_timedreceive", IPC, ""},
		{"sync", Uninterruptible, switching + "wb_wait_for_completion sync_inodes_sb __iterate_supers ksys_sync |sync",
			Disk, ""},
		{"memory.high", Uninterruptible, switching +
			"schedule_timeout __mem_cgroup_handle_over_high resume_user_mode_work |Main.work", Memory, ""},
		{"unknown function of the kernel", Blocked, switching + "new_wait |java.lang.Object.wait", Other, ""},
		{"no kernel frames", Blocked, "|java.lang.Object.wait0 java.lang.Object.wait", Wait, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stack := stackOf(tt.stack)
			got, inner := Classify(tt.state, tt.thread, stack, strings.Contains(tt.stack, ":enters"))
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if hasScheduler := strings.Contains(tt.stack, "__schedule"); hasScheduler && inner != 5 || !hasScheduler &&
				inner != 0 {
				t.Errorf("%d frames are the scheduler's", inner)
			}
		})
	}
}

func TestOfThread(t *testing.T) {
	for _, tt := range []struct{ state, thread, want string }{
		{Blocked, "G1 Conc#0", VM}, {Blocked, "http-1", Unknown}, {Uninterruptible, "", Unknown},
		{Stopped, "G1 Conc#0", Stopped},
	} {
		if got := OfThread(tt.state, tt.thread); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.state, tt.thread, got, tt.want)
		}
	}
}

// Rules have known causes, and a function has one.
func TestRules(t *testing.T) {
	table := compile([]rule{{"a b", Sleep}, {"c. d", Lock}})
	for name, want := range map[string]string{"a": Sleep, "b": Sleep, "c.x": Lock, "d": Lock, "c": "", "dd": ""} {
		if got := table.lookup(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, rules := range [][]rule{kernelRules.rules, faultRules.rules, userRules.rules, parkRules.rules} {
		seen := map[string]bool{}
		for _, r := range rules {
			if !slices.Contains(All, r.cause) {
				t.Errorf("cause %q is not among all", r.cause)
			}
			for name := range strings.FieldsSeq(r.names) {
				if seen[name] {
					t.Errorf("%s has two rules", name)
				}
				seen[name] = true
			}
		}
	}
}
