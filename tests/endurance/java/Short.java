import java.util.concurrent.ConcurrentLinkedQueue;

/** A small service that lives for as many seconds as its argument says: threads that compute, allocate, wait for a lock, sleep and end. */
public class Short {
	static volatile long sink;
	static final Object lock = new Object();

	public static void main(String[] args) throws Exception {
		System.out.println("ready pid " + ProcessHandle.current().pid());
		long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L;
		ConcurrentLinkedQueue<byte[]> kept = new ConcurrentLinkedQueue<>();
		while (System.nanoTime() < end) {
			Thread[] workers = new Thread[4];
			for (int i = 0; i < workers.length; i++) {
				workers[i] = new Thread(() -> request(kept));
				workers[i].start();
			}
			for (Thread worker : workers) {
				worker.join();
			}
			Thread.sleep(50);
		}
	}

	static void request(ConcurrentLinkedQueue<byte[]> kept) {
		for (int i = 0; i < 20; i++) {
			kept.add(new byte[4096]);
			if (kept.size() > 1000) {
				kept.poll();
			}
		}
		synchronized (lock) {
			sink += compute(20_000);
		}
	}

	static long compute(int n) {
		long x = sink | 1;
		for (int i = 0; i < n; i++) {
			x ^= x << 13;
			x ^= x >>> 7;
			x ^= x << 17;
		}
		return x;
	}
}
