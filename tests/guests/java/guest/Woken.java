package guest;

import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads that wait, and know who ends that. The amount is how many milliseconds each thread does so.
 *
 * <p>A line {@code woken METHOD WAKER TIMES NANOS} reports how often a method waited, and how long its thread was off the CPU in it: the time
 * that passed without the CPU time that the thread used. WAKER is the method that ended each of these waits, or {@code [timer]}.
 */
final class Woken implements Events {
    /** How long waits are. A profiler records these each. */
    private static final long MILLIS = 15;

    /** After so many calls methods are compiled. */
    private static final int COMPILED = 20_000;

    /** Something that happens over and over. */
    private interface Step {
        void once() throws Exception;
    }

    private static final String[] LINES = {
        "woken guest.Woken.enter guest.Woken.release", "woken guest.Woken.park guest.Woken.unpark", "woken guest.Woken.await guest.Woken.signal",
        "woken guest.Woken.take guest.Woken.put", "woken guest.Woken.read guest.Woken.write", "woken guest.Woken.sleep [timer]",
    };

    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private final Object signal = new Object();
    private final Object held = new Object();
    private final Semaphore hold = new Semaphore(0);
    private final Semaphore queue = new Semaphore(0);
    private final Semaphore ready = new Semaphore(0);
    private final BlockingQueue<Integer> tasks = new LinkedBlockingQueue<>();
    private volatile Thread enters;
    private volatile Thread parks;
    private volatile Thread queues;
    private volatile boolean over;
    private long inMonitor;

    @Override
    public long run(int workers, int amount, PrintStream truth) throws Exception {
        long[] times = new long[LINES.length];
        long[] nanos = new long[LINES.length];
        for (int i = 0; i < COMPILED; i++) {
            release(false);
            signal();
        }
        for (Semaphore left : new Semaphore[] {hold, queue, ready}) {
            left.drainPermits(); // by threads that found the last run over before they took one
        }
        over = false;
        enters = null;
        parks = null;
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
                Socket peer = server.accept()) {
            InputStream in = client.getInputStream();
            OutputStream out = peer.getOutputStream();
            Thread[] partners = {
                partner("queue", () -> {
                    queue.acquire();
                    if (!over) {
                        release(false);
                    }
                }),
                partner("holder", () -> {
                    hold.acquire();
                    if (!over) {
                        release(true);
                    }
                }),
                partner("unparker", () -> {
                    Thread.sleep(MILLIS);
                    unpark();
                }),
                partner("notifier", () -> {
                    Thread.sleep(MILLIS);
                    signal();
                }),
                partner("producer", () -> {
                    Thread.sleep(MILLIS);
                    put();
                }),
                partner("writer", () -> {
                    Thread.sleep(MILLIS);
                    write(out);
                }),
            };
            queues = partners[0];
            Step[] prepare = {this::prepare, () -> parks = Thread.currentThread(), () -> { }, () -> { }, () -> { }, () -> { }};
            Step[] ways = {this::enter, this::park, this::await, this::take, () -> read(in), this::sleep};
            Crew.run(ways.length, way -> {
                long end = System.nanoTime() + amount * 1_000_000L;
                long last;
                do {
                    prepare[way].once();
                    long used = threads.getCurrentThreadCpuTime();
                    long begin = System.nanoTime();
                    ways[way].once();
                    last = System.nanoTime();
                    nanos[way] += last - begin - (threads.getCurrentThreadCpuTime() - used);
                    times[way]++;
                } while (last < end);
                return 0;
            });
            over = true;
            hold.release();
            queue.release();
            for (Thread partner : partners) {
                partner.join();
            }
            tasks.clear();
        }
        for (int i = 0; i < LINES.length; i++) {
            truth.println(LINES[i] + " " + times[i] + " " + nanos[i]);
        }
        return LINES.length;
    }

    private Thread partner(String name, Step step) {
        Thread t = new Thread(() -> {
            try {
                while (!over) {
                    step.once();
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, name);
        t.start();
        return t;
    }

    /** Has another thread take the monitor. */
    private void prepare() throws InterruptedException {
        enters = Thread.currentThread();
        hold.release();
        ready.acquire();
    }

    /**
     * Takes the monitor, and releases it. With hold, the thread that enters it waits meanwhile, and another one queues for it before: up to
     * JDK 23 the first in the queue looks at the monitor again and again by itself, with a timer. Either may be the one that lets it in.
     */
    void release(boolean hold) throws InterruptedException {
        synchronized (held) {
            if (hold) {
                queue.release();
                blocked(queues);
                ready.release();
                blocked(enters);
                Thread.sleep(MILLIS);
            }
            inMonitor++;
        }
    }

    private static void blocked(Thread t) throws InterruptedException {
        while (t.getState() != Thread.State.BLOCKED) {
            Thread.sleep(1);
        }
    }

    void enter() {
        synchronized (held) {
            inMonitor++;
        }
    }

    void park() {
        LockSupport.park(this);
    }

    void unpark() {
        LockSupport.unpark(parks);
    }

    void await() throws InterruptedException {
        synchronized (signal) {
            signal.wait();
        }
    }

    void signal() {
        synchronized (signal) {
            signal.notify();
        }
    }

    void take() throws InterruptedException {
        tasks.take();
    }

    void put() throws InterruptedException {
        tasks.put(1);
    }

    void read(InputStream in) throws Exception {
        in.read();
    }

    void write(OutputStream out) throws Exception {
        out.write(1);
    }

    void sleep() throws InterruptedException {
        Thread.sleep(MILLIS);
    }
}
