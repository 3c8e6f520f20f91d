package guest;

import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.Pipe;
import java.nio.channels.Selector;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that wait, each in a way of its own, and know what for. The amount is how many milliseconds each thread does so.
 *
 * <p>A line {@code away METHOD CAUSE TIMES NANOS} reports how often a method waited, and how long its thread was off the CPU in it:
 * the time that passed without the CPU time that the thread used.
 */
final class Away implements Events {
    /** How long most waits are. A profiler records these each. */
    private static final long MILLIS = 15;

    /** Something that waits once. */
    private interface Way {
        void once() throws Exception;
    }

    /** Something that lets others wait, over and over. */
    private interface Partner {
        void once() throws Exception;
    }

    /** What is counted for one thread. */
    private static final class Tally {
        long times;
        long nanos;
    }

    private static final String[] LINES = {
        "away guest.Away.sleep sleep", "away guest.Away.park park", "away guest.Away.await wait", "away guest.Away.monitor monitor",
        "away guest.Away.lock lock", "away guest.Away.socket socket", "away guest.Away.pipe pipe", "away guest.Away.poll poll",
        "away guest.Away.disk disk", "away guest.Away.burn runnable",
    };

    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private final Object signal = new Object();
    private final Object held = new Object();
    private final ReentrantLock lock = new ReentrantLock();
    private final ByteBuffer block = ByteBuffer.allocateDirect(4096); // once: a thread that allocates may have to wait for a collection
    private volatile boolean over;
    private long inMonitor;
    private volatile long inBurn;

    @Override
    public long run(int workers, int amount, PrintStream truth) throws Exception {
        Tally[] tallies = new Tally[LINES.length];
        for (int i = 0; i < tallies.length; i++) {
            tallies[i] = new Tally();
        }
        over = false;
        Path file = Files.createTempFile("away", null);
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
                Socket peer = server.accept();
                FileChannel output = FileChannel.open(file, StandardOpenOption.WRITE);
                Selector selector = Selector.open()) {
            Pipe pipe = Pipe.open();
            InputStream in = client.getInputStream();
            OutputStream out = peer.getOutputStream();
            Thread[] partners = {
                partner(() -> {
                    synchronized (held) {
                        Thread.sleep(MILLIS);
                    }
                    Thread.sleep(1);
                }),
                partner(() -> {
                    lock.lock();
                    try {
                        Thread.sleep(MILLIS);
                    } finally {
                        lock.unlock();
                    }
                    Thread.sleep(1);
                }),
                partner(() -> {
                    Thread.sleep(MILLIS);
                    out.write(1);
                }),
                partner(() -> {
                    Thread.sleep(MILLIS);
                    pipe.sink().write(ByteBuffer.allocate(1));
                }),
            };
            Way[] ways = {
                this::sleep, this::park, this::await, this::monitor, this::lock, () -> socket(in), () -> pipe(pipe), () -> poll(selector),
                () -> disk(output), this::burn,
            };
            // Others compete with the last one for its CPU.
            int burners = Runtime.getRuntime().availableProcessors() + 1;
            Crew.run(ways.length + burners, number -> {
                int way = Math.min(number, ways.length - 1);
                return repeat(ways[way], amount, tallies[way]);
            });
            over = true;
            for (Thread partner : partners) {
                partner.join();
            }
            pipe.sink().close();
            pipe.source().close();
        } finally {
            Files.delete(file);
        }
        for (int i = 0; i < LINES.length; i++) {
            truth.println(LINES[i] + " " + tallies[i].times + " " + tallies[i].nanos);
        }
        return LINES.length;
    }

    private Thread partner(Partner p) {
        Thread t = new Thread(() -> {
            try {
                while (!over) {
                    p.once();
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, "partner");
        t.start();
        return t;
    }

    private long repeat(Way way, int millis, Tally tally) throws Exception {
        long end = System.nanoTime() + millis * 1_000_000L;
        long times = 0;
        long nanos = 0;
        long last;
        do {
            long used = threads.getCurrentThreadCpuTime();
            long begin = System.nanoTime();
            way.once();
            last = System.nanoTime();
            nanos += last - begin - (threads.getCurrentThreadCpuTime() - used);
            times++;
        } while (last < end);
        synchronized (tally) {
            tally.times += times;
            tally.nanos += nanos;
        }
        return 0;
    }

    void sleep() throws InterruptedException {
        Thread.sleep(MILLIS);
    }

    void park() {
        LockSupport.parkNanos(this, MILLIS * 1_000_000);
    }

    void await() throws InterruptedException {
        synchronized (signal) {
            signal.wait(MILLIS);
        }
    }

    void monitor() {
        synchronized (held) {
            inMonitor++;
        }
        Thread.yield();
    }

    void lock() {
        lock.lock();
        lock.unlock();
        Thread.yield();
    }

    void socket(InputStream in) throws Exception {
        in.read();
    }

    void pipe(Pipe pipe) throws Exception {
        pipe.source().read(ByteBuffer.allocate(1));
    }

    void poll(Selector selector) throws Exception {
        selector.select(MILLIS);
    }

    void disk(FileChannel file) throws Exception {
        block.clear();
        file.write(block, 0);
        file.force(true);
    }

    void burn() {
        long end = System.nanoTime() + 10_000_000;
        while (System.nanoTime() < end) {
            inBurn++;
        }
    }
}
