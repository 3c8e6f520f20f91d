package guest;

import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Random;
import java.util.concurrent.Semaphore;

/**
 * Threads that handle requests, of which few are slow, and know how long each took and why. The amount is for how many milliseconds. The
 * first run only has the JVM compile {@link #handle}.
 *
 * <p>A line {@code call METHOD START NANOS RAN SLEEP MONITOR SOCKET END} is one call: when it began by the clock of System.nanoTime, how
 * long it took, the CPU time that it used, the time without CPU time in its three waits, and 1 if it ended by an exception.
 */
final class Requests implements Events {
    /** What a request takes, in microseconds. A negative number is none of it. */
    private static final class Request {
        int burn;
        int sleep = -1;
        int monitor = -1;
        int socket = -1;
        boolean fails;
    }

    /** What a call did. */
    private static final class Log {
        long start;
        long end;
        long ran;
        long slept;
        long blocked;
        long received;
        boolean failed;
    }

    /** What a thread needs to handle requests. */
    private static final class Handler implements AutoCloseable {
        final Log log = new Log();
        final Object held = new Object();
        final Semaphore wanted = new Semaphore(0);
        final Semaphore taken = new Semaphore(0);
        final Socket client;
        final Socket server;
        final InputStream in;
        final OutputStream out;
        volatile int micros;

        Handler() throws Exception {
            try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                client = new Socket(listener.getInetAddress(), listener.getLocalPort());
                server = listener.accept();
            }
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            in = client.getInputStream();
            out = client.getOutputStream();
            partner("holder", () -> {
                wanted.acquire();
                synchronized (held) {
                    taken.release();
                    pause(micros);
                }
            });
            InputStream requests = server.getInputStream();
            OutputStream answers = server.getOutputStream();
            partner("server", () -> {
                int tens = requests.read();
                if (tens < 0) {
                    throw new InterruptedException();
                }
                pause(tens * 10_000);
                answers.write(1);
            });
        }

        @Override
        public void close() throws Exception {
            client.close();
            server.close();
        }
    }

    private interface Partner {
        void once() throws Exception;
    }

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static volatile boolean warm;

    @Override
    public long run(int workers, int amount, PrintStream truth) throws Exception {
        if (!warm) {
            warmUp();
            warm = true;
            return 1;
        }
        return Crew.run(workers, number -> {
            Thread.sleep(1000); // a profiler may not see threads at once
            Random random = new Random(number);
            StringBuilder lines = new StringBuilder();
            long calls = 0;
            try (Handler h = new Handler()) {
                long end = System.nanoTime() + amount * 1_000_000L;
                while (System.nanoTime() < end) {
                    Request r = next(random, (int) calls);
                    call(h, r);
                    calls++;
                    Log l = h.log;
                    lines.append("call guest.Requests.handle ").append(l.start).append(' ').append(l.end - l.start).append(' ').append(l.ran)
                            .append(' ').append(l.slept).append(' ').append(l.blocked).append(' ').append(l.received).append(' ')
                            .append(l.failed ? 1 : 0).append('\n');
                    Thread.sleep(12); // longer than what is recorded always
                }
            }
            synchronized (truth) {
                truth.print(lines);
            }
            return 0;
        });
    }

    /** One request in 16 is slow. */
    private static Request next(Random random, int number) {
        Request r = new Request();
        r.burn = 500 + random.nextInt(1000);
        int kind = random.nextInt(4);
        int tens = 2; // of milliseconds
        if (number % 16 == 7) {
            tens = 8 + random.nextInt(40);
            r.fails = random.nextInt(4) == 0;
        }
        switch (kind) {
            case 0:
                r.burn += tens * 2_500;
                break;
            case 1:
                r.sleep = tens * 10_000;
                break;
            case 2:
                r.monitor = tens * 10_000;
                break;
            default:
                r.socket = tens * 10_000;
        }
        return r;
    }

    private static void warmUp() throws Exception {
        try (Handler h = new Handler()) {
            for (int i = 0; i < 30_000; i++) {
                Request r = new Request();
                r.burn = i % 8;
                r.fails = i % 16 == 3;
                r.sleep = i % 4 == 1 && i % 256 < 4 ? 1 : -1;
                r.monitor = i % 4 == 2 ? 0 : -1;
                r.socket = i % 4 == 3 ? 0 : -1;
                call(h, r);
            }
        }
        Thread.sleep(1000); // for the compilers
    }

    private static void call(Handler h, Request r) throws Exception {
        if (r.monitor >= 0) {
            h.micros = r.monitor;
            h.wanted.release();
            h.taken.acquire();
        }
        try {
            handle(h, r);
            h.log.failed = false;
        } catch (IllegalStateException e) {
            h.log.failed = true;
        }
    }

    static void handle(Handler h, Request r) throws Exception {
        Log l = h.log;
        l.start = System.nanoTime();
        long used = THREADS.getCurrentThreadCpuTime();
        burn(r.burn);
        l.slept = r.sleep < 0 ? 0 : rest(r.sleep);
        l.blocked = r.monitor < 0 ? 0 : enter(h);
        l.received = r.socket < 0 ? 0 : receive(h, r.socket);
        l.ran = THREADS.getCurrentThreadCpuTime() - used;
        l.end = System.nanoTime();
        if (r.fails) {
            throw new IllegalStateException();
        }
    }

    /** Uses the CPU, for that long by the thread's own clock. */
    private static void burn(int micros) {
        long end = THREADS.getCurrentThreadCpuTime() + micros * 1_000L;
        while (THREADS.getCurrentThreadCpuTime() < end) {
            Thread.onSpinWait();
        }
    }

    private static long rest(int micros) throws InterruptedException {
        long used = THREADS.getCurrentThreadCpuTime();
        long begin = System.nanoTime();
        Thread.sleep(micros / 1000, micros % 1000 * 1000);
        return Math.max(0, System.nanoTime() - begin - (THREADS.getCurrentThreadCpuTime() - used));
    }

    private static long enter(Handler h) {
        long used = THREADS.getCurrentThreadCpuTime();
        long begin = System.nanoTime();
        synchronized (h.held) {
            return Math.max(0, System.nanoTime() - begin - (THREADS.getCurrentThreadCpuTime() - used));
        }
    }

    private static long receive(Handler h, int micros) throws Exception {
        long used = THREADS.getCurrentThreadCpuTime();
        long begin = System.nanoTime();
        h.out.write(micros / 10_000);
        h.in.read();
        return Math.max(0, System.nanoTime() - begin - (THREADS.getCurrentThreadCpuTime() - used));
    }

    private static void pause(int micros) throws InterruptedException {
        if (micros > 0) {
            Thread.sleep(micros / 1000, micros % 1000 * 1000);
        }
    }

    private static void partner(String name, Partner p) {
        Thread t = new Thread(() -> {
            try {
                while (true) {
                    p.once();
                }
            } catch (Exception e) {
                return; // the run is over
            }
        }, name);
        t.setDaemon(true);
        t.start();
    }
}
