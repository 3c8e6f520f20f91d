package guest;

import java.io.PrintStream;
import java.util.SplittableRandom;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that block each other, and measure for how long. The amount is the number of rounds of each thread, some 0.4
 * ms each without waits.
 *
 * <p>A line {@code wait METHOD CLASS TIMES LONG NANOS LONGNANOS} reports how often a method acquired what belongs to
 * the class, and the total time; those that took longer than 10 microseconds are also counted separately. Waits for a
 * notification are not contention: their lines begin with {@code idle}.
 */
final class Waiting implements Events {
    static final class Hot {}

    static final class Warm {}

    static final class Signal {}

    /** What is counted for one thread at one place. */
    private static final class Tally {
        /** No thread passes through the kernel in less time. */
        private static final long LONG = 10_000;

        long times;
        long longTimes;
        long nanos;
        long longNanos;
        /** Of the long ones, in square microseconds. */
        long longSquares;

        void add(long wait) {
            times++;
            nanos += wait;
            if (wait > LONG) {
                longTimes++;
                longNanos += wait;
                longSquares += (wait / 1000) * (wait / 1000);
            }
        }

        void add(Tally other) {
            times += other.times;
            longTimes += other.longTimes;
            nanos += other.nanos;
            longNanos += other.longNanos;
            longSquares += other.longSquares;
        }
    }

    private enum Place {
        HOT("wait guest.Waiting.hot guest.Waiting$Hot"),
        WARM("wait guest.Waiting.warm guest.Waiting$Warm"),
        // A thread is parked on the lock's inner object.
        LOCK("wait guest.Waiting.lock java.util.concurrent.locks.ReentrantLock$NonfairSync"),
        PERMIT("wait guest.Waiting.permit java.util.concurrent.Semaphore$FairSync"),
        CONDITION("idle guest.Waiting.condition"
                + " java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject"),
        NOTIFICATION("idle guest.Waiting.notification guest.Waiting$Signal");

        final String line;

        Place(String line) {
            this.line = line;
        }
    }

    private static final Place[] PLACES = Place.values();

    /** How long a lock is held, in nanoseconds. */
    private static final long HOLD = 50_000;

    /** How long a thread does something else, at most. */
    private static final long THINK = 100_000;

    /** The number of rounds per wait for a notification, which takes a millisecond. */
    private static final int SIGNAL_ROUNDS = 16;

    private final Hot hot = new Hot();
    private final Warm warm = new Warm();
    private final ReentrantLock lock = new ReentrantLock();
    private final Semaphore permit = new Semaphore(1, true);
    private long inHot;
    private long inWarm;
    private long inLock;
    private long inPermit;

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        Tally[][] tallies = new Tally[threads][PLACES.length];
        for (Tally[] own : tallies) {
            for (int i = 0; i < own.length; i++) {
                own[i] = new Tally();
            }
        }
        long before = inHot + inWarm + inLock + inPermit;
        Crew.run(threads, number -> work(new SplittableRandom(number), amount, tallies[number]));
        for (Place place : PLACES) {
            Tally sum = new Tally();
            for (Tally[] own : tallies) {
                sum.add(own[place.ordinal()]);
            }
            truth.println(place.line + " " + sum.times + " " + sum.longTimes + " " + sum.nanos + " " + sum.longNanos
                    + " " + sum.longSquares);
        }
        return inHot + inWarm + inLock + inPermit - before;
    }

    long work(SplittableRandom random, int rounds, Tally[] tallies) throws InterruptedException {
        ReentrantLock own = new ReentrantLock();
        Condition never = own.newCondition();
        Signal signal = new Signal();
        for (int i = 0; i < rounds; i++) {
            hot(tallies[0]);
            spin(random.nextLong(THINK));
            if (i % 4 == 0) {
                warm(tallies[1]);
            }
            lock(tallies[2]);
            spin(random.nextLong(THINK));
            permit(tallies[3]);
            spin(random.nextLong(THINK));
            if (i % SIGNAL_ROUNDS == 0) {
                condition(own, never, tallies[4]);
                notification(signal, tallies[5]);
            }
        }
        return rounds;
    }

    static void spin(long nanos) {
        for (long end = System.nanoTime() + nanos; System.nanoTime() - end < 0; ) {}
    }

    void hot(Tally tally) {
        long asked = System.nanoTime();
        synchronized (hot) {
            tally.add(System.nanoTime() - asked);
            inHot++;
            spin(HOLD);
        }
    }

    void warm(Tally tally) {
        long asked = System.nanoTime();
        synchronized (warm) {
            tally.add(System.nanoTime() - asked);
            inWarm++;
            spin(HOLD / 4);
        }
    }

    void lock(Tally tally) {
        long asked = System.nanoTime();
        lock.lock();
        try {
            tally.add(System.nanoTime() - asked);
            inLock++;
            spin(HOLD);
        } finally {
            lock.unlock();
        }
    }

    void permit(Tally tally) {
        long asked = System.nanoTime();
        permit.acquireUninterruptibly();
        try {
            tally.add(System.nanoTime() - asked);
            inPermit++;
            spin(HOLD);
        } finally {
            permit.release();
        }
    }

    /** Waits for what nobody signals. */
    static void condition(ReentrantLock own, Condition never, Tally tally) throws InterruptedException {
        own.lock();
        try {
            long began = System.nanoTime();
            if (never.await(1, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("signalled by nobody");
            }
            tally.add(System.nanoTime() - began);
        } finally {
            own.unlock();
        }
    }

    static void notification(Signal signal, Tally tally) throws InterruptedException {
        synchronized (signal) {
            long began = System.nanoTime();
            signal.wait(1);
            tally.add(System.nanoTime() - began);
        }
    }
}
