package guest;

import java.util.ArrayList;
import java.util.List;
import java.util.function.IntToLongFunction;

/**
 * Some 5,000 compiled methods, all in use: a guest whose method map takes time to read. With {@code -Dcopies=COUNT} there are four times that
 * many methods.
 */
final class Crowd implements Program {
    private static final int METHODS_PER_COPY = 4;
    private static final int COPIES = Integer.getInteger("copies", 5_000 / METHODS_PER_COPY);
    private static final int CALLS_UNTIL_COMPILED = 3_000;
    private static final int WARM_UP_ROUNDS = 10;

    private final List<IntToLongFunction> crowd = new ArrayList<>(COPIES);

    @Override
    public void start(Ledger ledger) throws Exception {
        Template template = new Template("Gen000000");
        for (int number = 1; number <= COPIES; number++) {
            IntToLongFunction member = (IntToLongFunction) new Copies(number).make(template);
            for (int i = 0; i < CALLS_UNTIL_COMPILED; i++) {
                member.applyAsLong(WARM_UP_ROUNDS);
            }
            crowd.add(member);
        }
        Worker.start(ledger, "worker", Kind.of(1, this::all, Claim.total("guest.Crowd.all")));
    }

    /** Calls every method of the crowd. */
    long all() {
        long sum = 0;
        for (IntToLongFunction member : crowd) {
            sum += member.applyAsLong(WARM_UP_ROUNDS);
        }
        return sum;
    }
}
