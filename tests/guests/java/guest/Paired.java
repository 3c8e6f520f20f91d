package guest;

import java.util.List;
import java.util.Random;

/** Serves requests of one method, which the JVM's flags make slow or fast: {@code -Dwork=} summing, calling or dispatching. */
final class Paired implements Program {
    private static final int STEPS = 20;

    @Override
    public void start(Ledger ledger) {
        Kind kind = switch (System.getProperty("work", "calling")) {
            case "summing" -> Kind.of(1, Paired::summing, Claim.total("guest.Paired.summing"));
            case "calling" -> Kind.of(1, Paired::calling, Claim.total("guest.Paired.calling"));
            case "dispatching" -> Kind.of(1, Paired::dispatching, Claim.total("guest.Paired.dispatching"));
            default -> throw new IllegalArgumentException("-Dwork is none of summing, calling, dispatching");
        };
        Worker.start("worker", () -> new Pacer(ledger).serve(STEPS, List.of(kind)));
    }

    private static final int[] NUMBERS = new Random(1).ints(4_000).toArray();

    /** A loop that one compiler vectorizes and the other does not. */
    static long summing() {
        int sum = 0;
        for (int i = 0; i < 10; i++) {
            for (int number : NUMBERS) {
                sum += number * 3;
            }
        }
        return sum;
    }

    /** Calls a small method many times: inlined or not. */
    static long calling() {
        int sum = 0;
        for (int i = 0; i < 5; i++) {
            for (int number : NUMBERS) {
                sum = step(sum, number);
            }
        }
        return sum;
    }

    static int step(int sum, int number) {
        return sum + number * 3;
    }

    /** An operation of three kinds, of which one is 70 % of all. */
    interface Op {
        int apply(int x);
    }

    record Add(int amount) implements Op {
        @Override
        public int apply(int x) {
            return x + amount;
        }
    }

    record Flip(int mask) implements Op {
        @Override
        public int apply(int x) {
            return x ^ mask;
        }
    }

    record Scale(int factor) implements Op {
        @Override
        public int apply(int x) {
            return x * factor;
        }
    }

    private static final Op[] OPS = new Op[20];

    static {
        for (int i = 0; i < OPS.length; i++) {
            OPS[i] = i % 20 < 14 ? new Add(i) : i % 2 == 0 ? new Flip(i) : new Scale(i);
        }
    }

    /** Calls a method of an interface: guessed by the receiver's class, or looked up. */
    static long dispatching() {
        int x = 1;
        for (int i = 0; i < Burn.ROUNDS / OPS.length; i++) {
            for (Op op : OPS) {
                x = op.apply(x);
            }
        }
        return x;
    }
}
