package guest;

import java.util.Arrays;

/**
 * Four small methods that the compilers are told to inline next to each other into one that is not.
 *
 * <p>All kinds of work go through the same code of {@code pass}. Each has a plan that leads to one of the four methods only, and an
 * outermost method of its own, which is never inlined. So the rest of the stack shows which of the four was running, and no share must be
 * assumed: below {@code shifting} there is {@code shift}, never {@code scale}.
 *
 * <p>Each of the four calls a method that is not inlined, in the middle of its work. JVMs record debug information at calls by default.
 */
final class Siblings implements Program {
    /** How often a step runs one of the four: some 50 microseconds in all. */
    private static final int TIMES = 200;

    /** Rounds before the call, and as many after it: some 100 nanoseconds each. */
    private static final int ROUNDS = 40;

    private static final byte SHIFT = 0;
    private static final byte SCALE = 1;
    private static final byte DIVIDE = 2;
    private static final byte LOOK = 3;

    private static final byte[] SHIFTS = plan(SHIFT);
    private static final byte[] SCALES = plan(SCALE);
    private static final byte[] DIVISIONS = plan(DIVIDE);
    private static final byte[] LOOKS = plan(LOOK);

    /** A permutation of the numbers below its length, which is a power of two. */
    private static final int[] NEXT = new int[64];

    static {
        for (int i = 0; i < NEXT.length; i++) {
            NEXT[i] = i * 5 + 7 & NEXT.length - 1;
        }
    }

    private static byte[] plan(byte sibling) {
        byte[] plan = new byte[TIMES];
        Arrays.fill(plan, sibling);
        return plan;
    }

    @Override
    public void start(Ledger ledger) {
        ledger.fact("leaf guest.Siblings.shifting guest.Siblings.shift");
        ledger.fact("leaf guest.Siblings.scaling guest.Siblings.scale");
        ledger.fact("leaf guest.Siblings.dividing guest.Siblings.divide");
        ledger.fact("leaf guest.Siblings.looking guest.Siblings.look");
        Worker.start(
                ledger,
                "worker",
                Kind.of(
                        4,
                        Siblings::shifting,
                        Claim.self("guest.Siblings.shift"),
                        Claim.total("guest.Siblings.shifting")),
                Kind.of(
                        3,
                        Siblings::scaling,
                        Claim.self("guest.Siblings.scale"),
                        Claim.total("guest.Siblings.scaling")),
                Kind.of(
                        2,
                        Siblings::dividing,
                        Claim.self("guest.Siblings.divide"),
                        Claim.total("guest.Siblings.dividing")),
                Kind.of(
                        1,
                        Siblings::looking,
                        Claim.self("guest.Siblings.look"),
                        Claim.total("guest.Siblings.looking")));
    }

    static long shifting() {
        return pass(SHIFTS) ^ 1;
    }

    static long scaling() {
        return pass(SCALES) ^ 2;
    }

    static long dividing() {
        return pass(DIVISIONS) ^ 3;
    }

    static long looking() {
        return pass(LOOKS) ^ 4;
    }

    static long pass(byte[] plan) {
        long x = Burn.SEED;
        for (byte sibling : plan) {
            switch (sibling) {
                case SHIFT:
                    x = shift(x);
                    break;
                case SCALE:
                    x = scale(x);
                    break;
                case DIVIDE:
                    x = divide(x);
                    break;
                default:
                    x = look(x);
                    break;
            }
        }
        return x;
    }

    static long shift(long seed) {
        long x = seed | 1;
        for (int i = 0; i < ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        x = keep(x);
        for (int i = 0; i < ROUNDS; i++) {
            x ^= x << 17;
            x ^= x >>> 7;
            x ^= x << 13;
        }
        return x;
    }

    static long scale(long seed) {
        double x = (int) seed;
        for (int i = 0; i < ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        x = keep((long) x);
        for (int i = 0; i < ROUNDS; i++) {
            x = x * 1.25 - 0.5;
        }
        return (long) x;
    }

    static long divide(long seed) {
        long x = seed;
        for (int i = 1; i <= ROUNDS / 4; i++) {
            x = x / i + Burn.SEED; // a division takes longer than the others' rounds
        }
        x = keep(x);
        for (int i = 1; i <= ROUNDS / 4; i++) {
            x = x / i - Burn.SEED;
        }
        return x;
    }

    static long look(long seed) {
        int x = (int) seed & NEXT.length - 1;
        for (int i = 0; i < ROUNDS; i++) {
            x = NEXT[x];
        }
        x = (int) keep(x) & NEXT.length - 1;
        for (int i = 0; i < ROUNDS; i++) {
            x = NEXT[x];
        }
        return x;
    }

    /** Takes a nanosecond or two. */
    static long keep(long x) {
        return x + 1;
    }
}
