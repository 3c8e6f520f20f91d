package guest;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads that wait for short times, each length in a method of its own. The amount is for how many milliseconds each thread does so. Half of the
 * threads wait in all methods, in random order; each of the others has one method. The threads stay for the next run.
 *
 * <p>Lines {@code away METHOD park TIMES NANOS} and {@code cpu METHOD NANOS} report how long threads were off the CPU in a method, and on it.
 */
final class Dozing implements Events {
    private static final String[] METHODS = {"tiny", "small", "rare", "middling", "longer", "seldom"};

    /** How often a thread with all methods calls each, in 1,000. */
    private static final int[] RATES = {600, 300, 2, 80, 17, 1};

    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private final AtomicInteger started = new AtomicInteger();
    private final ExecutorService pool = Executors.newCachedThreadPool(work -> {
        Thread t = new Thread(work, "worker-" + started.getAndIncrement());
        t.setDaemon(true);
        return t;
    });
    private final long[] times = new long[METHODS.length];
    private final long[] away = new long[METHODS.length];
    private final long[] used = new long[METHODS.length];

    @Override
    public long run(int workers, int amount, PrintStream truth) throws Exception {
        for (int i = 0; i < METHODS.length; i++) {
            times[i] = away[i] = used[i] = 0;
        }
        List<Future<Long>> runs = new ArrayList<>();
        for (int i = 0; i < workers; i++) {
            int number = i;
            runs.add(pool.submit(() -> repeat(number, amount)));
        }
        for (Future<Long> run : runs) {
            run.get();
        }
        for (int i = 0; i < METHODS.length; i++) {
            truth.println("away guest.Dozing." + METHODS[i] + " park " + times[i] + " " + away[i]);
            truth.println("cpu guest.Dozing." + METHODS[i] + " " + used[i]);
        }
        return workers;
    }

    private long repeat(int number, int millis) {
        SplittableRandom random = new SplittableRandom(number);
        long[] ownTimes = new long[METHODS.length];
        long[] ownAway = new long[METHODS.length];
        long[] ownUsed = new long[METHODS.length];
        long end = System.nanoTime() + millis * 1_000_000L;
        for (long last = 0; last < end; ) {
            int method = number / 2 % METHODS.length;
            if (number % 2 == 0) {
                method = 0;
                for (int at = random.nextInt(1000); at >= RATES[method]; method++) {
                    at -= RATES[method];
                }
            }
            long cpu = threads.getCurrentThreadCpuTime();
            long begin = System.nanoTime();
            call(method, 512 + random.nextInt(1024));
            last = System.nanoTime();
            cpu = threads.getCurrentThreadCpuTime() - cpu;
            ownTimes[method]++;
            ownAway[method] += last - begin - cpu;
            ownUsed[method] += cpu;
        }
        synchronized (this) {
            for (int i = 0; i < METHODS.length; i++) {
                times[i] += ownTimes[i];
                away[i] += ownAway[i];
                used[i] += ownUsed[i];
            }
        }
        return number;
    }

    private void call(int method, long part) {
        switch (method) {
            case 0: tiny(part); break;
            case 1: small(part); break;
            case 2: rare(part); break;
            case 3: middling(part); break;
            case 4: longer(part); break;
            default: seldom(part);
        }
    }

    /** Lengths are from a half of that in the comment to one and a half. */
    private void tiny(long part) { // 50 us
        LockSupport.parkNanos(this, 50 * part);
    }

    private void small(long part) { // 300 us
        LockSupport.parkNanos(this, 300 * part);
    }

    private void rare(long part) { // 1 ms
        LockSupport.parkNanos(this, 1_000 * part);
    }

    private void middling(long part) { // 3 ms
        LockSupport.parkNanos(this, 3_000 * part);
    }

    private void longer(long part) { // 10 ms
        LockSupport.parkNanos(this, 10_000 * part);
    }

    private void seldom(long part) { // 40 ms
        LockSupport.parkNanos(this, 40_000 * part);
    }
}
