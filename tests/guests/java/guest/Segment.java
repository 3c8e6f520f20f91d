package guest;

/** A stretch of one kind of work, measured. */
final class Segment {
    private Segment() {}

    /** Works for about the given time, once at least, and enters it in the ledger. */
    static void work(Kind kind, long nanos, CpuClock clock, Ledger ledger) {
        Entry entry = ledger.open(kind.claims(), clock);
        work(kind, nanos);
        entry.close();
    }

    /** Works for about the given time, once at least. */
    static void work(Kind kind, long nanos) {
        long deadline = System.nanoTime() + nanos;
        do {
            kind.once();
        } while (System.nanoTime() < deadline);
    }
}
