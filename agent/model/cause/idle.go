package cause

import (
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// idleRules are of functions that wait for work: threads of pools without a task, event loops, and
// threads that accept connections. A thread below one of them is idle if it waits for one of
// idleCauses, and not for a lock of the pool or for memory.
var idleRules = compile([]rule{
	// Pools.
	{"java.util.concurrent.ThreadPoolExecutor.getTask " +
		"java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.take " +
		"java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.poll " +
		"java.util.concurrent.ForkJoinPool.awaitWork java.util.concurrent.ForkJoinPool.idleAwaitWork " +
		"org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask " +
		"org.eclipse.jetty.util.thread.QueuedThreadPool.idleJobPoll " +
		"org.eclipse.jetty.util.thread.QueuedThreadPool$Runner.idleJobPoll " +
		"io.netty.util.concurrent.SingleThreadEventExecutor.takeTask", Idle},
	// Timers, and threads of the class library.
	{"java.util.TimerThread.mainLoop java.util.concurrent.DelayScheduler.loop " +
		"java.lang.VirtualThread.takeVirtualThreadListToUnblock " +
		"io.netty.util.HashedWheelTimer$Worker.waitForNextTick java.lang.ref.ReferenceQueue.remove " +
		"java.lang.ref.Reference$ReferenceHandler.run java.lang.ref.Finalizer$FinalizerThread.run", Idle},
	// Event loops.
	{"sun.nio.ch.SelectorImpl.select sun.nio.ch.SelectorImpl.lockAndDoSelect io.netty.channel.epoll.Native.epollWait " +
		"io.netty.channel.epoll.EpollEventLoop.epollWait " +
		"ep_poll do_epoll_wait", Idle},
	// The end of the program, by the thread that ends the VM after it.
	{"Threads::destroy_vm jni_DestroyJavaVM", Idle},
	// Accept.
	{"java.net.ServerSocket.accept java.net.ServerSocket.implAccept sun.nio.ch.ServerSocketChannelImpl.accept " +
		"inet_csk_accept unix_accept vsock_accept __sys_accept4", Idle},
})

var idleCauses = map[string]bool{Park: true, Wait: true, Sleep: true, Poll: true, Socket: true, Futex: true,
	VMCall: true}

// idleThreads are how names of threads begin that only wait for work, and often do so all the time,
// so that their stacks are not known: those of the class library.
var idleThreads = [...]string{"Reference Handl", "Finalizer", "Common-Cleaner", "VirtualThread-u"}

// launchers are names of threads that wait for the end of a JVM: its first one waits for the main
// thread, and that one, once its main method has returned, for the threads of the program.
var launchers = map[string]bool{"java": true, "DestroyJavaVM": true}

// ofLibrary reports whether a thread with that name is one of idleThreads, or of launchers.
func ofLibrary(thread string) bool {
	return launchers[thread] || slices.ContainsFunc(idleThreads[:],
		func(name string) bool { return strings.HasPrefix(thread, name) })
}

// hasJava reports whether a frame is of Java.
func hasJava(stack []symbol.Symbol) bool {
	return slices.ContainsFunc(stack, func(f symbol.Symbol) bool {
		return f.Kind() == symbol.KindJIT || f.Kind() == symbol.KindInterpreted
	})
}

// IsIdle reports whether a thread has nothing to do while it waits for that cause: it waits for
// work, as the threads of the VM and workers of the kernel do. The stack is that of Of.
func IsIdle(cause, thread string, stack []symbol.Symbol) bool {
	switch {
	case cause == Worker, cause == VM && ofVM(thread), cause == Unknown && ofLibrary(thread):
		return true
	case cause == Futex && launchers[thread] && !hasJava(stack):
		return true
	case !idleCauses[cause]:
		return false
	}
	user := 0
	for _, f := range stack {
		if f.Kind() != symbol.KindKernel {
			if user++; user > maxWaiting {
				return false
			}
		}
		if idleRules.lookup(plain(f.Function())) != "" {
			return true
		}
	}
	return false
}
