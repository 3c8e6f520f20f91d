package guest;

import java.io.PrintStream;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;

/**
 * Causes safepoint pauses: by garbage, by requests for collections, and by requests for the stacks of all threads. The
 * amount is the number of rounds of each thread, with 64 MB of garbage each.
 *
 * <p>The JVM's own log (-Xlog:safepoint*) has the results; a line {@code collections NAME COUNT MILLIS} of each
 * collector is for comparison.
 */
final class Pausing implements Events {
    /** A list that lives through a round, so that a collection has something to do. */
    private static final class Kept {
        final Kept next;
        final long[] values = new long[13]; // 120 bytes

        Kept(Kept next) {
            this.next = next;
        }
    }

    private static final int KEPT = 20_000;
    private static final int GARBAGE = 64 << 20;
    private static final int PIECE = 16 << 10;

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        long checksum = Crew.run(threads, number -> {
            long sum = 0;
            for (int round = 0; round < amount; round++) {
                Kept list = keep(round);
                sum = sum * 31 + garbage();
                if (number == 0 && round % 4 == 0) {
                    System.gc();
                    sum += ManagementFactory.getThreadMXBean().dumpAllThreads(false, false).length > 0 ? 1 : 0;
                }
                sum = sum * 31 + sum(list);
            }
            return sum;
        });
        for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
            truth.println("collections " + collector.getName().replace(' ', '-') + " " + collector.getCollectionCount()
                    + " " + collector.getCollectionTime());
        }
        return checksum;
    }

    static Kept keep(long value) {
        Kept list = null;
        for (int i = 0; i < KEPT; i++) {
            list = new Kept(list);
            list.values[i % list.values.length] = value + i;
        }
        return list;
    }

    static long sum(Kept list) {
        long sum = 0;
        for (Kept kept = list; kept != null; kept = kept.next) {
            for (long value : kept.values) {
                sum = sum * 31 + value;
            }
        }
        return sum;
    }

    static long garbage() {
        long sum = 0;
        for (int bytes = 0; bytes < GARBAGE; bytes += PIECE) {
            sum += piece().length;
        }
        return sum;
    }

    static byte[] piece() {
        return new byte[PIECE];
    }
}
