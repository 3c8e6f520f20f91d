import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.IntStream;

/**
 * Services that people run, each with its own accounts: a line every 50 ms with the time of day, and until then the bytes that requests
 * allocated, the nanoseconds that they waited for locks and slept, their number, and the CPU time of the process.
 */
public class Services {
	static final LongAdder bytes = new LongAdder(), waited = new LongAdder(), slept = new LongAdder(), requests = new LongAdder();
	static final Object monitor = new Object();
	static final ReentrantLock lock = new ReentrantLock();
	static volatile Object sink;
	static volatile long result;

	public static void main(String[] args) throws Exception {
		Thread ledger = new Thread(Services::ledger, "ledger");
		ledger.setDaemon(true);
		ledger.start();
		switch (args[0]) {
			case "thread-per-request": threadPerRequest(300); break;
			case "pool": pool(Executors.newFixedThreadPool(64), 400); break;
			case "bursts": bursts(); break;
			case "virtual": pool(virtual(), 400); break;
			case "event-loop": eventLoop(); break;
			case "sockets": sockets(); break;
			case "batch": batch(); break;
			case "fork-join": forkJoin(); break;
			case "idle-pool": idle(100, 20); break;
			case "idle-schedule": idle(4, 2); break;
			case "pipeline": pipeline(); break;
			case "stuck": stuck(10); break;
			default: throw new IllegalArgumentException(args[0]);
		}
	}

	static void ledger() {
		var cpu = (com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean();
		for (;;) {
			java.time.Instant now = java.time.Instant.now();
			System.out.println((now.getEpochSecond() * 1_000_000_000L + now.getNano()) + " " + bytes.sum() + " " + waited.sum() + " " + slept.sum() + " " + requests.sum() + " " + cpu.getProcessCpuTime());
			try {
				Thread.sleep(50);
			} catch (InterruptedException e) {
				return;
			}
		}
	}

	/** One request: it allocates, computes, and takes two locks, one of which it holds while it sleeps if told so. */
	static void request(int size, int work, int nap) {
		bytes.add(fill(size));
		compute(work);
		underMonitor(work / 4);
		underLock(nap);
		requests.increment();
	}

	static long fill(int size) {
		byte[] made = new byte[size];
		made[size / 2] = 1;
		sink = made;
		return (size + 16 + 7) & ~7;
	}

	static void compute(int rounds) {
		long x = result;
		for (int i = 0; i < rounds; i++)
			x = x * 6364136223846793005L + Long.rotateLeft(x, 17) + i;
		result = x;
	}

	/** Adds the time to get a lock. Less than this is no wait, but what it takes to get a free lock and to read the clock twice. */
	static void addWait(long nanos) {
		if (nanos > 5_000)
			waited.add(nanos);
	}

	static void underMonitor(int work) {
		long began = System.nanoTime();
		synchronized (monitor) {
			addWait(System.nanoTime() - began);
			compute(work);
		}
	}

	static void underLock(int nap) {
		long began = System.nanoTime();
		lock.lock();
		try {
			addWait(System.nanoTime() - began);
			if (nap > 0)
				nap(nap);
		} finally {
			lock.unlock();
		}
	}

	static void nap(int micros) {
		long began = System.nanoTime();
		try {
			TimeUnit.MICROSECONDS.sleep(micros);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
		}
		slept.add(System.nanoTime() - began);
	}

	static void pace(long began, long n, long perSecond) throws InterruptedException {
		long due = began + n * 1_000_000_000L / perSecond - System.nanoTime();
		if (due > 0)
			TimeUnit.NANOSECONDS.sleep(due);
	}

	static void threadPerRequest(int perSecond) throws Exception {
		long began = System.nanoTime();
		for (long n = 0;; n++) {
			new Thread(() -> request(100_000, 50_000, 300), "request-" + n % 7).start();
			pace(began, n, perSecond);
		}
	}

	static void pool(ExecutorService pool, int perSecond) throws Exception {
		long began = System.nanoTime();
		for (long n = 0;; n++) {
			pool.execute(() -> request(60_000, 30_000, 500));
			pace(began, n, perSecond);
		}
	}

	static ExecutorService virtual() throws Exception {
		return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
	}

	static void bursts() throws Exception {
		ExecutorService pool = Executors.newCachedThreadPool();
		for (;;) {
			for (int i = 0; i < 150; i++)
				pool.execute(() -> request(40_000, 20_000, 100));
			Thread.sleep(400);
		}
	}

	static void eventLoop() throws Exception {
		Selector selector = Selector.open();
		Pipe[] pipes = new Pipe[50];
		for (int i = 0; i < pipes.length; i++) {
			pipes[i] = Pipe.open();
			pipes[i].source().configureBlocking(false);
			pipes[i].source().register(selector, SelectionKey.OP_READ);
		}
		Thread client = new Thread(() -> {
			try {
				for (int i = 0;; i++) {
					pipes[i % pipes.length].sink().write(ByteBuffer.wrap(new byte[]{1}));
					if (i % 10 == 0)
						Thread.sleep(10);
				}
			} catch (Exception e) {
				throw new IllegalStateException(e);
			}
		}, "client");
		client.setDaemon(true);
		client.start();
		ByteBuffer buffer = ByteBuffer.allocate(64);
		for (;;) {
			selector.select();
			for (SelectionKey key : selector.selectedKeys()) {
				buffer.clear();
				((Pipe.SourceChannel) key.channel()).read(buffer);
				request(20_000, 20_000, 0);
			}
			selector.selectedKeys().clear();
		}
	}

	static void sockets() throws Exception {
		ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
		for (int i = 0; i < 8; i++)
			new Thread(() -> {
				try (Socket s = new Socket(InetAddress.getLoopbackAddress(), server.getLocalPort())) {
					for (;;) {
						s.getOutputStream().write(1);
						s.getInputStream().read();
						Thread.sleep(20);
					}
				} catch (Exception e) {
					throw new IllegalStateException(e);
				}
			}, "client-" + i).start();
		for (int i = 0; i < 8; i++) {
			Socket s = server.accept();
			new Thread(() -> {
				try {
					InputStream in = s.getInputStream();
					OutputStream out = s.getOutputStream();
					while (in.read() >= 0) {
						request(50_000, 30_000, 0);
						out.write(1);
					}
				} catch (Exception e) {
					throw new IllegalStateException(e);
				}
			}, "worker-" + i).start();
		}
	}

	static void batch() {
		for (;;)
			request(3_000, 60_000, 0);
	}

	static void forkJoin() {
		for (;;)
			IntStream.range(0, 1000).parallel().forEach(i -> request(2_000, 40_000, 0));
	}

	static void idle(int threads, int perSecond) throws Exception {
		ScheduledExecutorService pool = Executors.newScheduledThreadPool(threads);
		pool.scheduleAtFixedRate(() -> request(30_000, 100_000, 2_000), 0, 1_000_000 / perSecond, TimeUnit.MICROSECONDS);
		for (int i = 0; i < threads; i++)
			pool.scheduleAtFixedRate(() -> request(30_000, 100_000, 0), 0, 2, TimeUnit.SECONDS);
		Thread.currentThread().join();
	}

	/** Threads that wait all the time for a monitor that a sleeping thread has. No request ever ends. */
	static void stuck(int threads) throws Exception {
		Object held = new Object();
		new Thread(() -> hold(held), "holder").start();
		Thread.sleep(200);
		for (int i = 0; i < threads; i++)
			new Thread(() -> wanted(held), "waiter-" + i).start();
	}

	static void hold(Object held) {
		synchronized (held) {
			nap(Integer.MAX_VALUE);
		}
	}

	static void wanted(Object held) {
		synchronized (held) {
			requests.increment();
		}
	}

	static void pipeline() throws Exception {
		ArrayBlockingQueue<Integer> queue = new ArrayBlockingQueue<>(16);
		for (int i = 0; i < 3; i++)
			new Thread(() -> {
				try {
					for (;;) {
						int size = queue.take();
						CompletableFuture.runAsync(() -> request(size, 20_000, 0), ForkJoinPool.commonPool()).join();
					}
				} catch (InterruptedException e) {
					Thread.currentThread().interrupt();
				}
			}, "stage-" + i).start();
		long began = System.nanoTime();
		for (long n = 0;; n++) {
			queue.put(10_000 + (int) (n % 5) * 10_000);
			pace(began, n, 600);
		}
	}
}
