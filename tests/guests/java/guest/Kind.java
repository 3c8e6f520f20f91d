package guest;

import java.util.List;
import java.util.function.LongSupplier;

/**
 * One kind of work.
 *
 * @param weight how long its segments are in relation to those of other kinds
 * @param step a piece of the work, well under a millisecond when compiled
 * @param checksum what the step returns, every time
 * @param claims the claims whose truth is its CPU time
 */
record Kind(int weight, LongSupplier step, long checksum, List<Claim> claims) {
    static Kind of(int weight, LongSupplier step, Claim... claims) {
        return new Kind(weight, step, step.getAsLong(), List.of(claims));
    }

    /** Does the work once. A wrong checksum ends the JVM: the observer has changed its behaviour. */
    void once() {
        if (step.getAsLong() != checksum) {
            System.err.println("checksum of " + claims + " changed");
            Runtime.getRuntime().halt(3);
        }
    }
}
