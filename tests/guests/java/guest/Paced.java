package guest;

import java.util.List;

/** Serves requests of two methods. With {@code -Dslow=PERCENT} the method {@code heavy} does that much more work. */
final class Paced implements Program {
    private static final int STEPS = 30;
    private static final int HEAVY_ROUNDS = Burn.ROUNDS / 100 * (100 + Integer.getInteger("slow", 0));

    @Override
    public void start(Ledger ledger) {
        Worker.start("worker", () -> new Pacer(ledger).serve(STEPS, List.of(
                Kind.of(1, Paced::heavy, Claim.self("guest.Paced.heavy")),
                Kind.of(1, Paced::light, Claim.self("guest.Paced.light")))));
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
