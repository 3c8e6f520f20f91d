package guest;

import java.util.function.LongSupplier;

/**
 * Work that is called from a frame whose code is deoptimised meanwhile: the frame's return address leads to a handler,
 * until the call returns.
 *
 * <p>A fact {@code under INNER PREFIX} says that every stack with the method INNER holds one further out whose name
 * begins with PREFIX.
 */
final class Deopt implements Program {
    /** A copy of {@link Base000000}. */
    public interface Caller {
        long call(LongSupplier middle);
    }

    private static final int CALLS_UNTIL_COMPILED = 20_000;
    private static final long SETTLE_MILLIS = 3;
    private static final long BURN_NANOS = 10_000_000;

    private final Template base;
    private final Template leaf;
    private final Kind burn = Kind.of(1, Deopt::burn, Claim.self("guest.Deopt.burn"));

    Deopt() throws Exception {
        base = new Template("Base000000");
        leaf = new Template("Leaf000000");
    }

    @Override
    public void start(Ledger ledger) {
        ledger.fact("under guest.Deopt.burn guest.Base");
        Worker.start("worker", () -> deoptimise(ledger));
    }

    private void deoptimise(Ledger ledger) {
        try {
            for (int number = 1; ; number++) {
                Copies copies = new Copies(number);
                Caller caller = (Caller) copies.make(base);
                Middle middle = new Middle(copies, ledger);
                for (int i = 0; i < CALLS_UNTIL_COMPILED; i++) {
                    caller.call(middle);
                }
                Thread.sleep(SETTLE_MILLIS); // compilers work in the background
                middle.armed = true;
                caller.call(middle);
            }
        } catch (ReflectiveOperationException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** The callee of the caller. It is not inlined, so that nothing but the loaded class invalidates the caller. */
    private final class Middle implements LongSupplier {
        private final Copies copies;
        private final Ledger ledger;
        private final CpuClock clock = CpuClock.of(Thread.currentThread());
        private boolean armed;

        Middle(Copies copies, Ledger ledger) {
            this.copies = copies;
            this.ledger = ledger;
        }

        @Override
        public long getAsLong() {
            if (armed) {
                try {
                    copies.make(leaf);
                } catch (ReflectiveOperationException e) {
                    throw new AssertionError(e);
                }
                Segment.work(burn, BURN_NANOS, clock, ledger);
            }
            return 0;
        }
    }

    static long burn() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }
}
