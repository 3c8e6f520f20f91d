package guest;

/**
 * Leaves that the compilers are told to inline, two and three levels deep, into methods that are not.
 *
 * <p>The leaves' shares can only be told where the JVM records debug information between safepoints; those of the
 * enclosing methods always.
 */
final class Inlined implements Program {
    @Override
    public void start(Ledger ledger) {
        ledger.fact("leaf guest.Inlined.outerShift guest.Inlined.shift");
        ledger.fact("leaf guest.Inlined.outerScale guest.Inlined.scale");
        Worker.start(
                ledger,
                "worker",
                Kind.of(
                        3,
                        Inlined::outerShift,
                        Claim.self("guest.Inlined.shift"),
                        Claim.total("guest.Inlined.outerShift")),
                Kind.of(
                        2,
                        Inlined::outerScale,
                        Claim.self("guest.Inlined.scale"),
                        Claim.total("guest.Inlined.outerScale")));
    }

    static long outerShift() {
        return inner(Burn.SEED) ^ 1;
    }

    static long outerScale() {
        return Double.doubleToLongBits(scale(1) + 1);
    }

    static long inner(long x) {
        return shift(x) + 1;
    }

    static long shift(long seed) {
        long x = seed;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static double scale(double seed) {
        double x = seed;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return x;
    }
}
