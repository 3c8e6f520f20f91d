package hotspot;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that wait for locks without end: the thread "owner" sleeps with a monitor and a ReentrantLock. The thread "idle" waits for work. It
 * says "ready" once all of them wait.
 */
public class StuckLocks {
	private static final Object monitor = new Object();
	private static final ReentrantLock lock = new ReentrantLock();
	private static final LinkedBlockingQueue<Object> work = new LinkedBlockingQueue<>();

	private static void hold() {
		lock.lock();
		synchronized (monitor) {
			doze();
		}
	}

	private static void doze() {
		try {
			Thread.sleep(Long.MAX_VALUE);
		} catch (InterruptedException e) {
			throw new IllegalStateException(e);
		}
	}

	private static void waitForMonitor() {
		synchronized (monitor) {
			System.out.println("never");
		}
	}

	private static void waitForLock() {
		lock.lock();
		System.out.println("never");
	}

	private static void waitForWork() {
		try {
			work.take();
		} catch (InterruptedException e) {
			throw new IllegalStateException(e);
		}
	}

	private static Thread start(String name, Runnable body, Thread.State state) throws Exception {
		Thread t = new Thread(body, name);
		t.setDaemon(true);
		t.start();
		while (t.getState() != state)
			Thread.sleep(1);
		return t;
	}

	public static void main(String[] args) throws Exception {
		int waiters = args.length > 0 ? Integer.parseInt(args[0]) : 1;
		start("owner", StuckLocks::hold, Thread.State.TIMED_WAITING);
		start("idle", StuckLocks::waitForWork, Thread.State.WAITING);
		List<Thread> all = new ArrayList<>();
		for (int i = 0; i < waiters; i++) {
			all.add(start("monitor-" + i, StuckLocks::waitForMonitor, Thread.State.BLOCKED));
			all.add(start("lock-" + i, StuckLocks::waitForLock, Thread.State.WAITING));
		}
		System.out.println("ready");
		System.in.read();
	}
}
