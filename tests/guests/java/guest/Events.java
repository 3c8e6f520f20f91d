package guest;

import java.io.PrintStream;

/** A program whose events are known, because it counts them itself. It does nothing without an order. */
interface Events {
    /**
     * Has new threads do some work each, waits for them, and prints what happened: lines that begin with the kind of the
     * event. What an amount is, each program says.
     *
     * @return a checksum, which depends on nothing but the arguments
     */
    long run(int threads, int amount, PrintStream truth) throws Exception;

    /** The program with the given simple class name. */
    static Events named(String name) throws ReflectiveOperationException {
        Class<?> type = Class.forName("guest." + name);
        return (Events) type.getDeclaredConstructor().newInstance();
    }
}
