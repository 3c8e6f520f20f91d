package calls;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/**
 * A program that knows how often each of its methods is called in which context.
 *
 * <p>The line {@code run THREADS ROUNDS} has new threads do every kind of call, {@code deep FRAMES} has one recurse,
 * {@code overflow TIMES} has one run out of stack, {@code make ROUNDS} has one allocate objects. {@code truth} prints what was called since the start. {@code done}
 * follows each. The end of the input ends the program.
 */
public final class Exact {
    private static final Object LOCK = new Object();
    private static final Context ROOT = new Context("");
    private static Method reflected;
    private static long sink; // so that results are used

    private Exact() {}

    public static void main(String[] args) throws Exception {
        reflected = Exact.class.getDeclaredMethod("reflected", Context.class, int.class);
        PrintStream out = System.out;
        out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            obey(order.split(" "), out);
            out.println("done");
        }
    }

    private static void obey(String[] order, PrintStream out) throws Exception {
        switch (order[0]) {
            case "run" -> runThreads(Integer.parseInt(order[1]), Integer.parseInt(order[2]));
            case "deep" -> onThread(c -> sink += deep(Integer.parseInt(order[1])));
            case "overflow" -> onThread(c -> overflow(c, Integer.parseInt(order[1])));
            case "make" -> onThread(c -> makes(Integer.parseInt(order[1])));
            case "truth" -> ROOT.print(out, "");
            default -> throw new IOException("unknown order: " + order[0]);
        }
    }

    /** An object of 24 bytes: nobody else has this class. */
    private static final class Item {
        private int first;
        private long second;
    }

    private static final IllegalStateException PLANNED = new IllegalStateException("planned");
    private static volatile Object kept; // so that the objects exist

    /** In a round: an item here, two and two arrays directly, one around, four in a recursion, one before an exception. */
    private static void makes(int rounds) {
        for (int i = 0; i < rounds; i++) {
            makesDirectly();
            makesAround();
            makesDeep(3);
            try {
                makesAndThrows();
            } catch (IllegalStateException e) {
                kept = new Item();
            }
        }
    }

    private static void makesDirectly() {
        kept = new Item();
        kept = new int[10];
    }

    private static void makesAround() {
        makesDirectly();
        kept = new Item();
    }

    private static void makesDeep(int n) {
        kept = new Item();
        if (n > 0) {
            makesDeep(n - 1);
        }
    }

    private static void makesAndThrows() {
        kept = new Item();
        throw PLANNED;
    }

    private interface Work {
        void run(Context c) throws Exception;
    }

    private static void onThread(Work work) throws InterruptedException {
        Thread thread = worker(0, work);
        thread.start();
        thread.join();
    }

    private static void runThreads(int count, int rounds) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            threads.add(worker(i, c -> {
                for (int round = 0; round < rounds; round++) {
                    everything(c, round);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** A thread whose context is its own: the name of the thread is the outermost part of it. */
    private static Thread worker(int number, Work work) {
        String name = "exact-" + number;
        Context c = ROOT.enter(name);
        return new Thread(() -> {
            try {
                work.run(c);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, name);
    }

    static void everything(Context caller, int round) throws Exception {
        Context c = caller.enter("calls.Exact.everything");
        sink += fib(c, 8);
        sink += even(c, 20);
        sink += inlined(c, 50);
        sink += virtual(c, round);
        sink += exceptions(c, 12);
        sink += natives(c, 5);
        sink += reflection(c, 3);
        sink += callbacks(c, 7);
        initialise(c, round);
    }

    static int fib(Context caller, int n) {
        Context c = caller.enter("calls.Exact.fib");
        return n < 2 ? n : fib(c, n - 1) + fib(c, n - 2);
    }

    static int even(Context caller, int n) {
        Context c = caller.enter("calls.Exact.even");
        return n == 0 ? 1 : odd(c, n - 1);
    }

    static int odd(Context caller, int n) {
        Context c = caller.enter("calls.Exact.odd");
        return n == 0 ? 0 : even(c, n - 1);
    }

    /** Methods that are small enough to be inlined into each other; the same one at two places. */
    static int inlined(Context caller, int times) {
        Context c = caller.enter("calls.Exact.inlined");
        int sum = 0;
        for (int i = 0; i < times; i++) {
            sum += outer(c, i) + inner(c, i);
        }
        return sum;
    }

    static int outer(Context caller, int i) {
        Context c = caller.enter("calls.Exact.outer");
        return inner(c, i) + inner(c, i + 1);
    }

    static int inner(Context caller, int i) {
        caller.enter("calls.Exact.inner");
        return i * 31;
    }

    /** New receivers come when the code for the old ones has been compiled. */
    static int virtual(Context caller, int round) {
        Context c = caller.enter("calls.Exact.virtual");
        Shape[] shapes = {
            new Shape.Square(), round > 40 ? new Shape.Circle() : new Shape.Square(),
            round > 80 ? new Shape.Line() : new Shape.Square(),
        };
        int sum = 0;
        for (int i = 0; i < 30; i++) {
            sum += shapes[i % 3].area(c, i);
        }
        return sum;
    }

    static int exceptions(Context caller, int times) {
        Context c = caller.enter("calls.Exact.exceptions");
        int caught = 0;
        for (int i = 0; i < times; i++) {
            try {
                caught += risky(c, i % 6, i);
            } catch (IllegalStateException e) {
                caught += inner(c, i);
            }
            caught += inner(c, i);
        }
        return caught;
    }

    /** Throws at every second depth 0, from frames that may be inlined, through frames that clean up. */
    static int risky(Context caller, int depth, int i) {
        Context c = caller.enter("calls.Exact.risky");
        if (depth == 0) {
            return fail(c, i);
        }
        try {
            return depth % 2 == 0 ? risky(c, depth - 1, i) : guarded(c, depth - 1, i);
        } finally {
            sink += inner(c, depth);
        }
    }

    static int guarded(Context caller, int depth, int i) {
        Context c = caller.enter("calls.Exact.guarded");
        synchronized (LOCK) {
            return risky(c, depth, i);
        }
    }

    static int fail(Context caller, int i) {
        caller.enter("calls.Exact.fail");
        if (i % 2 == 0) {
            throw new IllegalStateException("planned");
        }
        if (i % 3 == 0) {
            Object nothing = null;
            try {
                return nothing.hashCode(); // the VM throws this one
            } catch (NullPointerException e) {
                return 1;
            }
        }
        return i;
    }

    /** A native method that no compiler replaces. */
    static int natives(Context caller, int times) {
        Context c = caller.enter("calls.Exact.natives");
        int held = 0;
        for (int i = 0; i < times; i++) {
            c.enter("java.lang.Thread.holdsLock");
            held += Thread.holdsLock(LOCK) ? 1 : 0;
        }
        return held;
    }

    static int reflection(Context caller, int times) throws Exception {
        Context c = caller.enter("calls.Exact.reflection");
        int sum = 0;
        for (int i = 0; i < times; i++) {
            sum += (Integer) reflected.invoke(null, c, i);
        }
        return sum;
    }

    static int reflected(Context caller, int i) {
        Context c = caller.enter("calls.Exact.reflected");
        return inner(c, i) + fib(c, 3);
    }

    /** The class library calls the program. */
    static int callbacks(Context caller, int times) {
        Context c = caller.enter("calls.Exact.callbacks");
        return IntStream.range(0, times).map(i -> element(c, i)).filter(i -> i % 2 == 0).sum();
    }

    static int element(Context caller, int i) {
        Context c = caller.enter("calls.Exact.element");
        return inner(c, i);
    }

    private static Context initialising;

    /** The VM calls the initialiser of a class, once. */
    static void initialise(Context caller, int round) {
        Context c = caller.enter("calls.Exact.initialise");
        synchronized (LOCK) {
            initialising = c;
            sink += round == 5 ? Lazy.VALUE : 0;
        }
    }

    private static final class Lazy {
        static final int VALUE;

        static {
            Context c = initialising.enter("calls.Exact$Lazy.<clinit>");
            VALUE = fib(c, 2);
        }
    }

    /** Without a context, whose output would be too long. */
    private static int deep(int frames) {
        return frames <= 1 ? 1 : 1 + deep(frames - 1);
    }

    /** Its depth is unknown; the calls after it, and their number, are known. */
    static void overflow(Context caller, int times) {
        Context c = caller.enter("calls.Exact.overflow");
        for (int i = 0; i < times; i++) {
            try {
                endless(i);
            } catch (StackOverflowError e) {
                sink += fib(c, 4);
            }
        }
    }

    private static int endless(int i) {
        return i + endless(i + 1);
    }
}
