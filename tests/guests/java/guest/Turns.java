package guest;

import java.util.concurrent.locks.LockSupport;

/**
 * One of {@code -Dturns=COUNT} JVMs that work in turn: for a millisecond, after which it sleeps while the others do. Together they use a
 * tenth of a CPU, however many they are.
 */
final class Turns implements Program {
    private static final long SLICE_NANOS = 1_000_000;
    private static final long PERIOD_NANOS = 10 * SLICE_NANOS * Integer.getInteger("turns", 1);
    private static final int DEPTH = 20;
    private static final int ROUNDS = 1_000;

    @Override
    public void start(Ledger ledger) {
        Worker.start("worker", Turns::takeTurns);
    }

    private static void takeTurns() {
        long next = System.nanoTime();
        while (true) {
            for (long end = System.nanoTime() + SLICE_NANOS; System.nanoTime() < end;) {
                below(DEPTH);
            }
            next = Math.max(next + PERIOD_NANOS, System.nanoTime());
            LockSupport.parkNanos(next - System.nanoTime());
        }
    }

    static long below(int depth) {
        return depth == 0 ? burn() : below(depth - 1) + 1;
    }

    private static long burn() {
        long x = Burn.SEED;
        for (int i = 0; i < ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }
}
