package guest;

import java.util.function.IntToLongFunction;

/**
 * The template of {@link Churn}'s and {@link Crowd}'s classes. {@code run} only ever calls the two other methods of
 * its own number: a profile that shows anything else has a wrong name in it.
 */
public final class Gen000000 implements IntToLongFunction {
    public Gen000000() {}

    @Override
    public long applyAsLong(int rounds) {
        return run000000(rounds);
    }

    static long run000000(int rounds) {
        return shift000000(rounds) ^ scale000000(rounds);
    }

    static long shift000000(int rounds) {
        long x = Burn.SEED;
        for (int i = 0; i < rounds; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long scale000000(int rounds) {
        double x = 1;
        for (int i = 0; i < rounds; i++) {
            x = x * 0.75 + 0.5;
        }
        return Double.doubleToLongBits(x);
    }
}
