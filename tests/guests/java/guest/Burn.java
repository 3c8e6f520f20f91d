package guest;

/** The amount of work in a step. */
final class Burn {
    /** Rounds of an xorshift generator that take some 50 microseconds when compiled, 1 or 2 ms when interpreted. */
    static final int ROUNDS = 20_000;

    /** Where every xorshift begins; any odd number does. */
    static final long SEED = 0x9E3779B97F4A7C15L;

    private Burn() {}
}
