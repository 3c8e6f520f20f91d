package guest;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Virtual threads that wait, each in a way of its own, and know whether they give up their carrier for it. The amount is how many
 * milliseconds each does so. Needs JDK 21.
 *
 * <p>A line {@code away METHOD CAUSE TIMES NANOS} reports how often a method waited, and for how long. The cause is {@code unmounted} if no
 * thread of the kernel waits meanwhile.
 */
public final class Carried implements Events {
    private static final long MILLIS = 15;

    /** What is shorter is no wait: a lock was free. No thread has a clock that says how long it uses the CPU. */
    private static final long LEAST_NANOS = 1_000_000;

    /** The first JDK whose virtual threads give up their carrier while they have a monitor, or wait for one. */
    private static final int UNPINNED = 24;

    private static final int VERSION = Integer.parseInt(System.getProperty("java.specification.version").replace("1.", ""));

    /** Something that waits once. */
    private interface Way {
        void once() throws Exception;
    }

    /** A way, with its cause and what was counted of it. */
    private static final class Tally {
        final String method;
        final String cause;
        final Way way;
        long times;
        long nanos;

        Tally(String method, String cause, Way way) {
            this.method = method;
            this.cause = cause;
            this.way = way;
        }
    }

    /** A class of which a copy is initialized in each run: whatever its initializer calls waits below a frame of the VM, which pins it. */
    public static final class Initialized {
        static {
            initialize.run();
        }

        private Initialized() {}
    }

    /** What an initializer does. */
    public static volatile Runnable initialize;

    /** A loader that has its own copy of Initialized. */
    private static final class Loader extends ClassLoader {
        Loader() {
            super(Carried.class.getClassLoader());
        }

        void initialize() throws Exception {
            String name = Carried.class.getName() + "$Initialized";
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
                for (int b = in.read(); b >= 0; b = in.read()) {
                    bytes.write(b);
                }
            }
            defineClass(name, bytes.toByteArray(), 0, bytes.size());
            Class.forName(name, true, this);
        }
    }

    private final Object signal = new Object();
    private final Object held = new Object();
    private final Object own = new Object();
    private final ReentrantLock lock = new ReentrantLock();
    private volatile boolean over;
    private long inMonitor;

    @Override
    public long run(int workers, int amount, PrintStream truth) throws Exception {
        over = false;
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
                Socket peer = server.accept()) {
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
            };
            String unmounted = "unmounted";
            boolean pins = VERSION < UNPINNED;
            Tally[] tallies = {
                new Tally("sleep", unmounted, this::sleep), new Tally("park", unmounted, this::park), new Tally("lock", unmounted, this::lock),
                new Tally("socket", unmounted, () -> socket(in)), new Tally("await", pins ? "wait" : unmounted, this::await),
                new Tally("monitor", pins ? "monitor" : unmounted, this::monitor), new Tally("owning", pins ? "sleep" : unmounted, this::owning),
                new Tally("initializing", "sleep", this::initializing),
            };
            run(tallies, amount);
            over = true;
            for (Thread partner : partners) {
                partner.join();
            }
            for (Tally t : tallies) {
                truth.println("away guest.Carried." + t.method + " " + t.cause + " " + t.times + " " + t.nanos);
            }
            return tallies.length;
        }
    }

    private void run(Tally[] tallies, int millis) throws Exception {
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        List<FutureTask<Void>> tasks = new ArrayList<>();
        for (Tally t : tallies) {
            FutureTask<Void> task = new FutureTask<>(() -> {
                if (t.method.equals("initializing")) {
                    initialize = () -> repeat(t, millis);
                    new Loader().initialize();
                } else {
                    repeat(t, millis);
                }
                return null;
            });
            tasks.add(task);
            start.invoke(null, task);
        }
        for (FutureTask<Void> task : tasks) {
            task.get();
        }
    }

    private Thread partner(Way p) {
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

    private static void repeat(Tally tally, int millis) {
        long end = System.nanoTime() + millis * 1_000_000L;
        long last;
        do {
            long begin = System.nanoTime();
            try {
                tally.way.once();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            last = System.nanoTime();
            if (last - begin >= LEAST_NANOS) {
                tally.nanos += last - begin;
                tally.times++;
            }
            Thread.yield(); // so that others get what this thread has just left
        } while (last < end);
    }

    void sleep() throws InterruptedException {
        Thread.sleep(MILLIS);
    }

    void park() {
        LockSupport.parkNanos(this, MILLIS * 1_000_000);
    }

    void lock() {
        lock.lock();
        lock.unlock();
    }

    void socket(InputStream in) throws Exception {
        in.read();
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
    }

    void owning() throws InterruptedException {
        synchronized (own) {
            Thread.sleep(MILLIS);
        }
    }

    void initializing() throws InterruptedException {
        Thread.sleep(MILLIS);
    }
}
