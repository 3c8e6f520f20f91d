package guest;

import java.util.List;
import java.util.function.IntToLongFunction;

/**
 * Two threads that load a class, work in it until it is compiled, drop it and load the next: code memory is constantly
 * reused, by code with other names.
 *
 * <p>Thread {@code worker-P} runs the generations with number % 2 == P, each once and for some 30 ms. The truth of a
 * recording lists the generations that ran during it: others in the profile are wrong names.
 */
final class Churn implements Program {
    private static final int THREADS = 2;

    /** Counting both threads' generations, of which two run at a time: half a second. */
    private static final int GENERATIONS_PER_COLLECTION = 32;

    private static final long GENERATION_NANOS = 30_000_000;
    private static final int STEP_ROUNDS = 5_000;

    private final Template template;

    Churn() throws Exception {
        template = new Template("Gen000000");
    }

    @Override
    public void start(Ledger ledger) {
        for (int parity = 0; parity < THREADS; parity++) {
            int first = THREADS + parity; // number 0 is the template itself
            Worker.start("worker-" + parity, () -> churn(ledger, first));
        }
    }

    private void churn(Ledger ledger, int first) {
        CpuClock clock = CpuClock.of(Thread.currentThread());
        for (int number = first; ; number += THREADS) {
            generation(number, clock, ledger);
            if (number % GENERATIONS_PER_COLLECTION == 0) {
                System.gc(); // unloads the generations that were dropped
            }
        }
    }

    /** The entry begins before the class is loaded: its methods are on the stack as soon as it is. */
    private void generation(int number, CpuClock clock, Ledger ledger) {
        List<Claim> claims = List.of(Claim.total(template.name(number) + ".applyAsLong"));
        Entry entry = ledger.open(claims, clock);
        try {
            IntToLongFunction copy = (IntToLongFunction) new Copies(number).make(template);
            Segment.work(Kind.of(1, () -> copy.applyAsLong(STEP_ROUNDS)), GENERATION_NANOS);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
        entry.close();
    }
}
