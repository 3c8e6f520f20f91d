package guest;

import java.util.Locale;

/**
 * A property that a profile must have for a kind of work: its share of all samples.
 *
 * @param measure how samples are counted for it
 * @param name the method or thread that they are counted for, as the profile spells it
 */
record Claim(Measure measure, String name) {
    enum Measure {
        /** The innermost Java frame is the method. */
        SELF,
        /** The method is anywhere on the stack. */
        TOTAL,
        /** The sample was taken on the thread. */
        THREAD
    }

    @Override
    public String toString() {
        return measure.name().toLowerCase(Locale.ROOT) + " " + name;
    }

    static Claim self(String method) {
        return new Claim(Measure.SELF, method);
    }

    static Claim total(String method) {
        return new Claim(Measure.TOTAL, method);
    }

    static Claim thread(String name) {
        return new Claim(Measure.THREAD, name);
    }
}
