package guest;

/** Three methods that are never inlined, with shares of about 5, 3 and 2 tenths. */
final class Plain implements Program {
    @Override
    public void start(Ledger ledger) {
        Worker.start(
                ledger,
                "worker",
                Kind.of(5, Plain::heavy, Claim.self("guest.Plain.heavy")),
                Kind.of(3, Plain::medium, Claim.self("guest.Plain.medium")),
                Kind.of(2, Plain::light, Claim.self("guest.Plain.light")));
    }

    static long heavy() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long medium() {
        double x = 1;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return Double.doubleToLongBits(x);
    }

    static long light() {
        long x = Burn.SEED;
        for (int i = 1; i <= Burn.ROUNDS / 10; i++) {
            x = x / i + Burn.SEED; // a division takes about ten times as long as a shift
        }
        return x;
    }
}
