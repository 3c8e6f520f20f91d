package hotspot;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.IntUnaryOperator;

/**
 * Code of every kind that a HotSpot code cache holds, compiled, and then left alone: inlining through several levels,
 * lambdas, interface calls, synchronized methods, exceptions, native methods, array copies.
 *
 * <p>{@code warm} makes the code, prints {@code ready} and waits for the end of standard input. {@code burn} does so
 * and then runs {@link #burn} until the end of standard input.
 */
public final class ScopesGuest {
    private ScopesGuest() {}

    static volatile long sink;
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        warm();
        boolean burn = args[0].equals("burn");
        if (burn) {
            Thread worker = new Thread(ScopesGuest::work, "worker");
            worker.setDaemon(true);
            worker.start();
            Thread.sleep(1500); // the compilers finish
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            // ordered to go on
        }
        stopped = true;
    }

    static void work() {
        while (!stopped) {
            sink += burn(sink);
        }
    }

    /**
     * Three quarters of the time are spent in long_, one quarter in short_: both are straight-line code that is
     * inlined here, one after the other, so that whoever takes the wrong neighbour of an instruction sees one quarter
     * and three.
     */
    static long burn(long x) {
        for (int i = 0; i < 100_000; i++) {
            x = short_(long_(x));
            x = short_(long_(x));
            x = short_(long_(x));
            x = short_(long_(x));
            x = short_(long_(x));
            x = short_(long_(x));
            x = short_(long_(x));
            x = short_(long_(x));
        }
        return x;
    }

    /** Nine steps that wait for each other. */
    static long long_(long x) {
        x = (x ^ 0x9e37) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x79b9) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x7f4a) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x7c15) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x9e37) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x79b9) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x7f4a) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x7c15) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x4c15) * 0x5851f42d4c957f2dL;
        return x;
    }

    /** Three of them. */
    static long short_(long x) {
        x = (x ^ 0x1234) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x2345) * 0x5851f42d4c957f2dL;
        x = (x ^ 0x3456) * 0x5851f42d4c957f2dL;
        return x;
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
