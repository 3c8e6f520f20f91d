package guest;

/** Synchronised methods: one without contention, and one for which two threads compete. */
final class Monitors implements Program {
    private long guarded;
    private static final Object LOCK = new Object();

    @Override
    public void start(Ledger ledger) {
        Worker.start(
                ledger,
                "worker-a",
                Kind.of(2, this::uncontended, Claim.total("guest.Monitors.uncontended")),
                Kind.of(2, Monitors::contended, Claim.total("guest.Monitors.contended")));
        Worker.start(
                ledger,
                "worker-b",
                Kind.of(2, Monitors::contended, Claim.total("guest.Monitors.contended")),
                Kind.of(2, Plain::heavy, Claim.self("guest.Plain.heavy")));
    }

    long uncontended() {
        guarded = 0;
        for (int i = 0; i < 2000; i++) {
            count();
        }
        return guarded;
    }

    private synchronized void count() {
        guarded++;
    }

    /** Holds the lock for a few microseconds at a time, so that the other thread spins, then waits. */
    static long contended() {
        long x = 0;
        for (int i = 0; i < 10; i++) {
            synchronized (LOCK) {
                x += Monitors.hold();
            }
        }
        return x;
    }

    static long hold() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS / 20; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }
}
