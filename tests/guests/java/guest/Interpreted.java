package guest;

/**
 * Compiled code that calls methods which the compilers are told to leave to the interpreter, and back: compiled calls
 * interpreted calls compiled.
 */
final class Interpreted implements Program {
    /** Interpreted code takes about this many times as long. */
    private static final int SLOWDOWN = 25;

    @Override
    public void start(Ledger ledger) {
        Worker.start(
                ledger,
                "worker",
                Kind.of(
                        2,
                        Interpreted::outer,
                        Claim.total("guest.Interpreted.outer"),
                        Claim.self("guest.Interpreted.slow")),
                Kind.of(
                        2,
                        Interpreted::slowOuter,
                        Claim.total("guest.Interpreted.slowOuter"),
                        Claim.self("guest.Interpreted.fast")));
    }

    static long outer() {
        return slow() + 1;
    }

    /** Never compiled. */
    static long slow() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS / SLOWDOWN; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    /** Never compiled. */
    static long slowOuter() {
        return fast() + 1;
    }

    static long fast() {
        double x = 1;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return Double.doubleToLongBits(x);
    }
}
