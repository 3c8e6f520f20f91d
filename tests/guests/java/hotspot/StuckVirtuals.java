package hotspot;

import java.lang.reflect.Method;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;

/**
 * COUNT virtual threads of an executor and as many others park for a lock that the main thread has. It is compiled for JDKs that do not know
 * virtual threads, too.
 */
public class StuckVirtuals {
	private static final ReentrantLock lock = new ReentrantLock();

	private static void waitForLock() {
		lock.lock();
		System.out.println("never");
	}

	public static void main(String[] args) throws Exception {
		int count = Integer.parseInt(args[0]);
		lock.lock();
		Method start;
		try {
			start = Thread.class.getMethod("startVirtualThread", Runnable.class);
		} catch (NoSuchMethodException e) {
			System.out.println("ready");
			System.in.read();
			return;
		}
		ExecutorService executor = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
		for (int i = 0; i < count; i++) {
			executor.submit(StuckVirtuals::waitForLock);
			start.invoke(null, (Runnable) StuckVirtuals::waitForLock);
		}
		while (lock.getQueueLength() < 2 * count)
			Thread.sleep(10);
		System.out.println("ready");
		System.in.read();
	}
}
