package hotspot;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.DoubleSupplier;
import java.util.function.IntUnaryOperator;
import javax.tools.ToolProvider;

/**
 * Code of every kind that a HotSpot code cache holds, compiled, and then left alone: inlining through several levels,
 * lambdas, interface calls, synchronized methods, exceptions, native methods, array copies.
 *
 * <p>{@code warm} makes the code, prints {@code ready} and waits for the end of standard input. {@code burn} does so
 * while it runs {@link #burn}; behind {@code ready} it prints the time that one call of each of its leaves takes on this
 * processor. {@code crowd FILE} makes thousands of compiled methods by compiling that Java source, too.
 */
public final class ScopesGuest {
    private ScopesGuest() {}

    static volatile long sink;
    static volatile double result;
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        warm();
        if (args[0].equals("crowd")) {
            ToolProvider.getSystemJavaCompiler().run(null, null, null, "-proc:none", "-d", System.getProperty("java.class.path"), args[1]);
        }
        String ready = "ready";
        if (args[0].equals("burn")) {
            ready += String.format(
                    (Locale) null,
                    " divide=%.3f add=%.3f power=%.3f",
                    time(ScopesGuest::divides),
                    time(ScopesGuest::adds),
                    time(ScopesGuest::powers));
            Thread worker = new Thread(ScopesGuest::work, "worker");
            worker.setDaemon(true);
            worker.start();
            Thread.sleep(1500); // the compilers finish
        }
        System.out.println(ready);
        while (System.in.read() >= 0) {
            // ordered to go on
        }
        stopped = true;
    }

    static void work() {
        while (!stopped) {
            double x = result;
            for (int i = 0; i < 100_000; i++) {
                x = burn(x);
            }
            result = x;
        }
    }

    /**
     * Three leaves, inlined here one after the other, each a chain of instructions that wait for one another: 3 to 4
     * cycles for an addition or a multiplication, 13 to 15 for a division, on most processors.
     *
     * <p>Each takes its argument twice: what is used once is compiled as a part of what uses it, and debug information
     * is recorded for the whole.
     */
    static double burn(double x) {
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        x = power(add(divide(x)));
        return x;
    }

    static double divide(double x) {
        return (x + 3.0) / (x + 1.5);
    }

    static double add(double x) {
        return x * x + 0.25;
    }

    static double power(double x) {
        return x * x * x * x * x;
    }

    /** Some tenths of a millisecond: of many runs, some are not interrupted, however busy the machine is. */
    private static final int CHAIN = 50_000;

    /** Not a constant, or the compiler would find that these chains stay where they start. */
    static volatile double start = 1;

    static double divides() {
        double x = start;
        for (int i = 0; i < CHAIN; i++) {
            x = divide(x);
        }
        return x;
    }

    static double adds() {
        double x = start / 2;
        for (int i = 0; i < CHAIN; i++) {
            x = add(x);
        }
        return x;
    }

    static double powers() {
        double x = start;
        for (int i = 0; i < CHAIN; i++) {
            x = power(x);
        }
        return x;
    }

    /** The nanoseconds of one link of a chain: of the fastest of many runs, as nothing makes a run faster. */
    static double time(DoubleSupplier chain) {
        long fastest = Long.MAX_VALUE;
        for (int i = 0; i < 1_600; i++) {
            long start = System.nanoTime();
            result = chain.getAsDouble();
            fastest = Math.min(fastest, System.nanoTime() - start);
        }
        return (double) fastest / CHAIN;
    }

    static void warm() throws Exception {
        Map<String, Integer> counts = new HashMap<>();
        List<Shape> shapes = List.of(new Square(3), new Circle(2), new Blob(5));
        for (int i = 0; i < 20_000; i++) {
            sink += outer(i);
            for (Shape shape : shapes) {
                sink += shape.area();
            }
            counts.merge("k" + i % 100, 1, Integer::sum);
            sink += guarded(i) + tally(i) + copy(i);
            final int captured = i;
            sink += apply(x -> x + captured, i) + call(() -> captured);
        }
        sink += counts.size();
    }

    static int outer(int x) {
        return middle(x) + middle(x + 1);
    }

    static int middle(int x) {
        return leaf(x)
                + leaf(x + 2);
    }

    static int leaf(int x) {
        return Integer.toString(x).length();
    }

    interface Shape {
        int area();
    }

    record Square(int side) implements Shape {
        @Override
        public int area() {
            return side * side;
        }
    }

    record Circle(int radius) implements Shape {
        @Override
        public int area() {
            return 3 * radius * radius;
        }
    }

    record Blob(int size) implements Shape {
        @Override
        public int area() {
            return size + System.identityHashCode(this) % 2;
        }
    }

    static int guarded(int x) {
        try {
            if (x % 64 == 0) {
                throw new IllegalStateException("x");
            }
            return x;
        } catch (IllegalStateException e) {
            return -1;
        } finally {
            sink++;
        }
    }

    static synchronized int tally(int x) {
        return x & 7;
    }

    static int copy(int x) {
        int[] from = new int[32 + x % 32];
        List<int[]> kept = new ArrayList<>();
        kept.add(Arrays.copyOf(from, from.length / 2));
        return kept.get(0).length;
    }

    static int apply(IntUnaryOperator f, int x) {
        return f.applyAsInt(x);
    }

    static int call(Callable<Integer> c) throws Exception {
        return c.call();
    }
}
