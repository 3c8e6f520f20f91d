package guest;

/**
 * Methods whose code has a known fate: one whose receivers' classes change after a while, one that is called once and
 * loops, and one that a directive may keep from C2. Arguments: seconds until the classes change, and until the end; the
 * number of receivers, 1,000 by default.
 */
public final class Versions {
    interface Shape {
        int area(int x);
    }

    static final class Square implements Shape {
        public int area(int x) {
            return x * x + 1;
        }
    }

    static final class Circle implements Shape {
        public int area(int x) {
            return 3 * x * x + 7;
        }
    }

    static final class Ring implements Shape {
        public int area(int x) {
            return 5 * x * x - 3;
        }
    }

    static volatile long sink;

    /** Calls each element's method: compiled for one class of receivers, then for three. */
    static int sum(Shape[] shapes) {
        int sum = 0;
        for (int i = 0; i < shapes.length; i++) {
            sum += shapes[i].area(i + sum);
        }
        return sum;
    }

    /** Is called once. */
    static long loop(long until) {
        long n = 0;
        while (System.nanoTime() < until) {
            for (int i = 0; i < 1000; i++) {
                n += i * n + 1;
            }
        }
        return n;
    }

    static int plain(int n) {
        int sum = 0;
        for (int i = 0; i < n; i++) {
            sum = sum * 31 + i;
        }
        return sum;
    }

    public static void main(String[] args) throws Exception {
        Thread.sleep(1000); // until the agent has attached
        long begin = System.nanoTime();
        long change = begin + (long) (Double.parseDouble(args[0]) * 1e9);
        long end = begin + (long) (Double.parseDouble(args[1]) * 1e9);
        Thread loop = new Thread(() -> sink += loop(end), "loop");
        loop.start();
        Shape[] shapes = new Shape[args.length > 2 ? Integer.parseInt(args[2]) : 1000];
        java.util.Arrays.fill(shapes, new Square());
        boolean changed = false;
        for (long now; (now = System.nanoTime()) < end; ) {
            if (!changed && now > change) {
                changed = true;
                for (int i = 0; i < shapes.length; i++) {
                    shapes[i] = i % 3 == 0 ? new Square() : i % 3 == 1 ? new Circle() : new Ring();
                }
            }
            for (int i = 0; i < 100; i++) {
                sink += sum(shapes) + plain(500);
            }
        }
        loop.join();
    }
}
