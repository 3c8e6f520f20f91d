package guest;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * The CPU time of one platform thread, in nanoseconds: the clock of all ground truth.
 *
 * <p>It stands still while the thread waits or is preempted, like samples of on-CPU time. Interrupts handled on top of
 * the thread are charged to it, also as in samples.
 */
record CpuClock(long threadId) {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** The clock of a started platform thread. */
    static CpuClock of(Thread thread) {
        return new CpuClock(thread.getId());
    }

    long nanos() {
        long nanos = THREADS.getThreadCpuTime(threadId);
        if (nanos < 0) {
            throw new IllegalStateException("thread " + threadId + " has no CPU clock any more");
        }
        return nanos;
    }
}
