package guest;

import java.util.Arrays;
import java.util.Collections;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/**
 * A thread that does kinds of work for as long as the JVM lives, and reports the cost of each.
 *
 * <p>In every round of some ten milliseconds each kind gets its share of the time. The order is random, and the lengths
 * vary a little, so that the sampling period cannot beat with them.
 */
final class Worker implements Runnable {
    /** The length of a segment of weight 1. */
    private static final long SEGMENT_NANOS = 1_000_000;

    /** How much lengths vary, up and down. */
    private static final double JITTER = 0.2;

    private final Kind[] kinds;
    private final Ledger ledger;
    private final int busyPercent;

    private Worker(Ledger ledger, int busyPercent, Kind[] kinds) {
        this.ledger = ledger;
        this.busyPercent = busyPercent;
        this.kinds = kinds.clone();
    }

    /** Starts a worker that is always busy. */
    static void start(Ledger ledger, String name, Kind... kinds) {
        start(ledger, name, 100, kinds);
    }

    /** Starts a worker that sleeps between its segments so that it works for the given share of the time. */
    static void start(Ledger ledger, String name, int busyPercent, Kind... kinds) {
        start(name, new Worker(ledger, busyPercent, kinds));
    }

    /** Starts a worker that does something else than kinds of work in turn. */
    static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void run() {
        CpuClock clock = CpuClock.of(Thread.currentThread());
        Random random = new Random(Thread.currentThread().getName().hashCode());
        while (true) {
            Collections.shuffle(Arrays.asList(kinds), random);
            for (Kind kind : kinds) {
                double length = SEGMENT_NANOS * kind.weight() * (1 - JITTER + 2 * JITTER * random.nextDouble());
                Segment.work(kind, (long) length, clock, ledger);
                rest((long) length);
            }
        }
    }

    private void rest(long workedNanos) {
        long nanos = workedNanos * (100 - busyPercent) / busyPercent;
        if (nanos > 0) {
            LockSupport.parkNanos(nanos);
        }
    }
}
