package guest;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.SplittableRandom;

/**
 * Uses CPU in three methods, each called through the same recursion. The amount is the CPU time of each thread, in
 * milliseconds.
 *
 * <p>A line {@code cpu METHOD NANOS} reports the CPU time of a method and its share of the recursion by the threads'
 * own clocks, a line {@code depth METHOD TIMES} how many times a method is on each of their stacks.
 */
final class Working implements Events {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static final String[] METHODS = {"heavy", "medium", "light"};

    /** The lengths of the methods' segments in relation to each other. */
    private static final int[] WEIGHTS = {5, 3, 2};

    /** The length of a segment of weight 1, on average. */
    private static final long SEGMENT_NANOS = 1_000_000;

    private static final int DEPTH = 20;

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        long[][] nanos = new long[threads][METHODS.length];
        long checksum = Crew.run(threads, number -> work(new SplittableRandom(number), amount * 1_000_000L, nanos[number]));
        for (int i = 0; i < METHODS.length; i++) {
            long sum = 0;
            for (long[] own : nanos) {
                sum += own[i];
            }
            truth.println("cpu guest.Working." + METHODS[i] + " " + sum);
        }
        truth.println("depth guest.Working.descend " + (DEPTH + 1));
        return checksum;
    }

    static long work(SplittableRandom random, long amount, long[] nanos) {
        long checksum = 0;
        for (int i = 0; i < METHODS.length; i++) {
            checksum += descend(DEPTH, i);
        }
        long end = THREADS.getCurrentThreadCpuTime() + amount;
        for (long now = end - amount; now < end; ) {
            // The order is random and the lengths vary, so that the sampling period cannot beat with them.
            int method = random.nextInt(METHODS.length);
            long deadline = System.nanoTime() + (long) (WEIGHTS[method] * SEGMENT_NANOS * (0.8 + 0.4 * random.nextDouble()));
            long expected = descend(DEPTH, method);
            while (System.nanoTime() < deadline) {
                if (descend(DEPTH, method) != expected) {
                    throw new IllegalStateException("the result of " + METHODS[method] + " changed");
                }
            }
            long then = THREADS.getCurrentThreadCpuTime();
            nanos[method] += then - now;
            now = then;
        }
        return checksum;
    }

    static long descend(int further, int method) {
        if (further > 0) {
            return descend(further - 1, method) + 1;
        }
        switch (method) {
            case 0:
                return heavy();
            case 1:
                return medium();
            default:
                return light();
        }
    }

    static long heavy() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long medium() {
        double x = 1;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return Double.doubleToLongBits(x);
    }

    static long light() {
        long x = Burn.SEED;
        for (int i = 1; i <= Burn.ROUNDS / 10; i++) {
            x = x / i + Burn.SEED; // a division takes about ten times as long as a shift
        }
        return x;
    }
}
