package guest;

/**
 * Work at the bottom of recursions of 10, 100 and 1,000 calls.
 *
 * <p>A fact {@code depth ENTRY METHOD BOTTOM CALLS} says that every stack from the entry to the bottom holds the
 * method so many times.
 */
final class Recursive implements Program {
    private static final int DEEP = 1000;
    private static final int MIDDLE = 100;
    private static final int SHALLOW = 10;

    @Override
    public void start(Ledger ledger) {
        ledger.fact(depth("deep", DEEP));
        ledger.fact(depth("middle", MIDDLE));
        ledger.fact(depth("shallow", SHALLOW));
        Worker.start(
                ledger,
                "worker",
                Kind.of(2, Recursive::deep, Claim.total("guest.Recursive.deep")),
                Kind.of(2, Recursive::middle, Claim.total("guest.Recursive.middle")),
                Kind.of(1, Recursive::shallow, Claim.total("guest.Recursive.shallow")));
    }

    private static String depth(String entry, int calls) {
        return "depth guest.Recursive." + entry + " guest.Recursive.down guest.Recursive.bottom " + calls;
    }

    static long deep() {
        return down(DEEP);
    }

    static long middle() {
        return down(MIDDLE);
    }

    static long shallow() {
        return down(SHALLOW);
    }

    static long down(int calls) {
        return calls == 1 ? bottom() : down(calls - 1) + 1;
    }

    static long bottom() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }
}
