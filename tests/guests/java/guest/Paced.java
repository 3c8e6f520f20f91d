package guest;

import java.util.List;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/**
 * Serves a request every five milliseconds, whatever that costs: two runs differ only in how expensive a request is. With
 * {@code -Dslow=PERCENT} the method {@code heavy} does that much more work.
 */
final class Paced implements Program {
    private static final long PERIOD_NANOS = 5_000_000;

    /** The request begins this much later or earlier, so that the sampling period cannot beat with it. */
    private static final long JITTER_NANOS = 2_000_000;

    private static final int STEPS = 30;
    private static final int HEAVY_ROUNDS = Burn.ROUNDS / 100 * (100 + Integer.getInteger("slow", 0));

    private Ledger ledger;

    @Override
    public void start(Ledger ledger) {
        this.ledger = ledger;
        Worker.start("worker", this::serve);
    }

    private void serve() {
        CpuClock clock = CpuClock.of(Thread.currentThread());
        Kind heavy = Kind.of(1, Paced::heavy, Claim.self("guest.Paced.heavy"));
        Kind light = Kind.of(1, Paced::light, Claim.self("guest.Paced.light"));
        Random random = new Random(1);
        for (long due = System.nanoTime(); ; due += PERIOD_NANOS) {
            long begin = due + random.nextLong() % JITTER_NANOS;
            for (long wait = begin - System.nanoTime(); wait > 0; wait = begin - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            for (Kind kind : List.of(heavy, light)) {
                Entry entry = ledger.open(kind.claims(), clock);
                for (int i = 0; i < STEPS; i++) {
                    kind.once();
                }
                entry.close();
            }
        }
    }

    static long heavy() {
        long x = Burn.SEED;
        for (int i = 0; i < HEAVY_ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long light() {
        double x = 1;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return (long) (x * 1000); // a call, even an inlined one, would have samples of its own
    }
}
