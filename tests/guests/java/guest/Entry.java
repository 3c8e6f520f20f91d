package guest;

import java.util.List;

/** A stretch of one kind of work: when it was done, and the CPU time that its thread took. */
final class Entry {
    private final List<Claim> claims;
    private final CpuClock clock;
    private final long beginMillis = System.currentTimeMillis();
    private final long beginNanos;
    private volatile long endMillis = Long.MAX_VALUE; // while it goes on
    private volatile long endNanos;

    Entry(List<Claim> claims, CpuClock clock) {
        this.claims = claims;
        this.clock = clock;
        beginNanos = clock.nanos();
        endNanos = beginNanos;
    }

    void close() {
        endNanos = clock.nanos();
        endMillis = System.currentTimeMillis();
    }

    List<Claim> claims() {
        return claims;
    }

    CpuClock clock() {
        return clock;
    }

    /** Whether any part of it was in the window, by the wall clock. */
    boolean overlaps(long fromMillis, long toMillis) {
        return beginMillis <= toMillis && endMillis >= fromMillis;
    }

    /** Whether its end was in the window. */
    boolean endedIn(long fromMillis, long toMillis) {
        return endMillis >= fromMillis && endMillis <= toMillis;
    }

    /** The CPU time that it took; 0 while it goes on. */
    long nanos() {
        return endNanos - beginNanos;
    }

    /** The thread's clock at its end. */
    long endNanos() {
        return endNanos;
    }
}
