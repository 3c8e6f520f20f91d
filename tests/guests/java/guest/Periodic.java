package guest;

import java.util.concurrent.locks.LockSupport;

/** A thread that works for two milliseconds every twenty, as the clock says, beside one that is always busy. */
final class Periodic implements Program {
    private static final long PERIOD_NANOS = 20_000_000;
    private static final long WORK_NANOS = 2_000_000;

    @Override
    public void start(Ledger ledger) {
        Worker.start(ledger, "worker-steady", Kind.of(5, Plain::light, claims("worker-steady", "guest.Plain.light")));
        Worker.start("worker-timer", () -> repeat(ledger));
    }

    private static void repeat(Ledger ledger) {
        CpuClock clock = CpuClock.of(Thread.currentThread());
        Kind kind = Kind.of(1, Plain::heavy, claims("worker-timer", "guest.Plain.heavy"));
        for (long due = System.nanoTime(); ; due += PERIOD_NANOS) {
            for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            Segment.work(kind, WORK_NANOS, clock, ledger);
        }
    }

    private static Claim[] claims(String thread, String method) {
        return new Claim[] {Claim.thread(thread), Claim.self(method)};
    }
}
