package guest;

/** A stretch of one kind of work, measured. */
final class Segment {
    private Segment() {}

    /** Works for about the given time, once at least, and reports the CPU time that it took. */
    static void work(Kind kind, long nanos, CpuClock clock, Ledger ledger) {
        long begin = clock.nanos();
        long deadline = System.nanoTime() + nanos;
        do {
            kind.once();
        } while (System.nanoTime() < deadline);
        ledger.add(kind.claims(), clock.nanos() - begin);
    }
}
