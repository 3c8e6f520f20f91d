package guest;

import java.io.PrintStream;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;

/** Many threads that do little, such as those of a server with many clients. The amount is how often each naps and works. */
final class Napping implements Events {
    private static final long NAP_NANOS = 100_000_000;

    /** Some microseconds. */
    private static final int WORK = 2_000;

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        return Crew.run(threads, number -> nap(new SplittableRandom(number), amount));
    }

    static long nap(SplittableRandom random, int amount) {
        long sum = 0;
        for (int i = 0; i < amount; i++) {
            // Lengths vary, so that threads do not wake at the same moment.
            for (long end = System.nanoTime() + NAP_NANOS / 2 + random.nextLong(NAP_NANOS), left = 1; left > 0; ) {
                left = end - System.nanoTime();
                LockSupport.parkNanos(left);
            }
            for (int j = 0; j < WORK; j++) {
                sum += random.nextInt() & 1;
            }
        }
        return sum;
    }
}
