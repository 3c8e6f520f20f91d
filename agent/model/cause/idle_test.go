package cause

import (
	"slices"
	"strings"
	"testing"
)

func TestIsIdle(t *testing.T) {
	const park = "futex_wait |jdk.internal.misc.Unsafe.park java.util.concurrent.locks.LockSupport.park "
	const take = "java.util.concurrent.LinkedBlockingQueue.take java.util.concurrent.ThreadPoolExecutor.getTask " +
		"java.util.concurrent.ThreadPoolExecutor.runWorker"
	for _, tt := range []struct {
		name, cause, thread, stack string
		want                       bool
	}{
		{"pool", Park, "http-1", park + take, true},
		{"the lock of the pool's queue", Lock, "http-1", park + take, false},
		{"a pool's thread in a task", Park, "http-1", park +
			"java.util.concurrent.FutureTask.get Shop.order java.util.concurrent.ThreadPoolExecutor.runWorker", false},
		{"fork and join", Park, "ForkJoinPool-1", park + "java.util.concurrent.ForkJoinPool.awaitWork", true},
		{"what wakes virtual threads since JDK 25", Park, "ForkJoinPool-1-", park +
			"java.util.concurrent.DelayScheduler.loop", true},
		{"what wakes virtual threads that waited for monitors", VMCall, "VirtualThread-u",
			"futex_wait |pthread_cond_wait java.lang.VirtualThread.takeVirtualThreadListToUnblock", true},
		{"event loop", Poll, "nio-1", "ep_poll do_epoll_wait |sun.nio.ch.EPoll.wait " +
			"sun.nio.ch.SelectorImpl.lockAndDoSelect", true},
		{"event loop of a native program", Poll, "nginx", "ep_poll do_epoll_wait |epoll_wait", true},
		{"a socket with a timeout", Poll, "http-1", "do_sys_poll |poll sun.nio.ch.NioSocketImpl.timedRead", false},
		{"accept", Socket, "acceptor", "inet_csk_accept |accept sun.nio.ch.ServerSocketChannelImpl.accept", true},
		{"a collector's thread", VM, "G1 Conc#0", "futex_wait |", true},
		{"a lock of the VM", VM, "http-1", "futex_wait |Mutex::lock", false},
		{"worker of io_uring", Worker, "iou-wrk-1", "io_wq_worker |", true},
		{"an application's sleep", Sleep, "main", "hrtimer_nanosleep |java.lang.Thread.sleep Main.main", false},
		{"far out", Park, "main", park + strings.Repeat("Main.recurse ", maxWaiting) + take, false},
		{"a thread of the class library that never went on", Unknown, "Finalizer", "|", true},
		{"the launcher of a JVM", Unknown, "java", "|", true},
		{"the launcher of a JVM, by its stack", Futex, "java", "futex_wait |__futex_abstimed_wait_common", true},
		{"the main thread at the end", Futex, "DestroyJavaVM", "futex_wait |__futex_abstimed_wait_common", true},
		{"the end of an embedded JVM", Futex, "app",
			"futex_wait |Monitor::wait Threads::destroy_vm jni_DestroyJavaVM main", true},
		{"a futex of another thread", Futex, "http-1", "futex_wait |__futex_abstimed_wait_common", false},
		{"a thread that never went on", Unknown, "http-1", "|", false},
		{"a thread of the class library in a file", Disk, "Finalizer", "|", false},
		{"runnable", Runnable, "http-1", "|" + take, false},
	} {
		if got := IsIdle(tt.cause, tt.thread, stackOf(tt.stack)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// No rule of an idle thread is in vain.
func TestIdleRules(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range idleRules.rules {
		for name := range strings.FieldsSeq(r.names) {
			if seen[name] {
				t.Errorf("%s has two rules", name)
			}
			seen[name] = true
			stack := stackOf("|x " + name)
			if !IsIdle(Park, "", stack) || IsIdle(Monitor, "", stack) {
				t.Errorf("%s has no effect", name)
			}
		}
	}
	for cause := range idleCauses {
		if !slices.Contains(All, cause) {
			t.Errorf("cause %q is not among all", cause)
		}
	}
}
