package guest;

import java.util.List;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/** Serves a request every five milliseconds, whatever that costs, so that two runs differ only in the cost of a request. */
final class Pacer {
    private static final long PERIOD_NANOS = 5_000_000;

    /** The request begins this much later or earlier, so that the sampling period cannot beat with it. */
    private static final long JITTER_NANOS = 2_000_000;

    private final Ledger ledger;

    Pacer(Ledger ledger) {
        this.ledger = ledger;
    }

    /** Serves requests of that many steps of each kind, forever. */
    void serve(int steps, List<Kind> kinds) {
        CpuClock clock = CpuClock.of(Thread.currentThread());
        Random random = new Random(1);
        for (long due = System.nanoTime(); ; due += PERIOD_NANOS) {
            long begin = due + random.nextLong() % JITTER_NANOS;
            for (long wait = begin - System.nanoTime(); wait > 0; wait = begin - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            for (Kind kind : kinds) {
                Entry entry = ledger.open(kind.claims(), clock);
                for (int i = 0; i < steps; i++) {
                    kind.once();
                }
                entry.close();
            }
        }
    }
}
