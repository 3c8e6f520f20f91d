package guest;

import java.io.PrintStream;
import java.util.SplittableRandom;

/**
 * Acquires four monitors, which no thread holds for long, 50, 30, 15 and 5 times in a hundred. The amount is how often
 * each thread acquires one of them.
 */
final class Locking implements Events {
    /** A monitor, and what it guards. */
    static class Guarded {
        long value;

        /** A synchronised method acquires the monitor before its own code, not in it. */
        synchronized void add(long what) {
            value += what;
        }
    }

    static final class Often extends Guarded {}

    static final class Usual extends Guarded {}

    static final class Sometimes extends Guarded {}

    static final class Seldom extends Guarded {}

    private final Often often = new Often();
    private final Usual usual = new Usual();
    private final Sometimes sometimes = new Sometimes();
    private final Seldom seldom = new Seldom();

    /** By method: often, usual, either with a Usual, either with a Seldom, Guarded.add. */
    private static final int PLACES = 5;

    /** Steps of arithmetic between two acquisitions, some 0.2 microseconds. */
    private static final int PAUSE = 100;

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        long[][] counts = new long[threads][PLACES];
        long before = guarded();
        long checksum = Crew.run(threads, number -> work(new SplittableRandom(number), amount, counts[number]));
        long[] sums = new long[PLACES];
        for (long[] count : counts) {
            for (int i = 0; i < PLACES; i++) {
                sums[i] += count[i];
            }
        }
        print(truth, "guest.Locking.often", Often.class, sums[0]);
        print(truth, "guest.Locking.usual", Usual.class, sums[1]);
        print(truth, "guest.Locking.either", Usual.class, sums[2]);
        print(truth, "guest.Locking.either", Seldom.class, sums[3]);
        print(truth, "guest.Locking$Guarded.add", Sometimes.class, sums[4]);
        if (guarded() - before != (long) threads * amount) {
            throw new IllegalStateException("a monitor was held twice at once");
        }
        return checksum;
    }

    private static void print(PrintStream truth, String method, Class<?> type, long acquisitions) {
        truth.println("enter " + method + " " + type.getTypeName() + " " + acquisitions);
    }

    /** How often all monitors have been acquired. */
    private long guarded() {
        return often.value + usual.value + sometimes.value + seldom.value;
    }

    long work(SplittableRandom random, int times, long[] counts) {
        long x = Burn.SEED;
        for (int i = 0; i < times; i++) {
            int lot = random.nextInt(100);
            int place = lot < 50 ? 0 : lot < 70 ? 1 : lot < 80 ? 2 : lot < 85 ? 3 : 4;
            counts[place]++;
            take(place);
            x = x * 31 + place;
            x ^= pause(x);
        }
        return x;
    }

    void take(int place) {
        switch (place) {
            case 0:
                often(often);
                return;
            case 1:
                usual(usual);
                return;
            case 2:
                either(usual);
                return;
            case 3:
                either(seldom);
                return;
            default:
                sometimes.add(1);
        }
    }

    static void often(Guarded lock) {
        synchronized (lock) {
            lock.value++;
        }
    }

    static void usual(Guarded lock) {
        synchronized (lock) {
            lock.value++;
        }
    }

    /** One place for two monitors. */
    static void either(Guarded lock) {
        synchronized (lock) {
            lock.value++;
        }
    }

    static long pause(long x) {
        for (int i = 0; i < PAUSE; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }
}
