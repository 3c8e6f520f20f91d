package hotspot;

import java.util.function.IntUnaryOperator;

/**
 * Calls of every kind, in known proportions.
 *
 * <p>{@code CallsGuest N} runs {@link #round} N times, prints {@code ready N} and waits for the end of standard input.
 * The test that starts it has the table of what each method calls how often.
 */
public final class CallsGuest {
    private CallsGuest() {}

    static int sink;

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        for (int i = 0; i < rounds; i++) {
            sink += round(i);
        }
        System.out.println("ready " + rounds);
        while (System.in.read() >= 0) {
            // ordered to go on
        }
    }

    static final Shape[] SHAPES = {new Circle(), new Square(), new Line(), new Point()};
    static final Named[] NAMED = {new Circle(), new Square()};
    static final IntUnaryOperator[] OPERATORS = {x -> x + 1, x -> x ^ 5};
    static final Circle CIRCLE = new Circle();

    /** 21 calls, one of each kind. */
    static int round(int i) {
        Shape both = SHAPES[i % 4 == 0 ? 1 : 0]; // circles 3 : squares 1
        Shape many = SHAPES[i % 8 < 4 ? 0 : i % 8 < 6 ? 1 : i % 8 - 4]; // 4 circles, 2 squares, a line, a point
        int sum = one(SHAPES[0]) + two(both) + several(many);
        sum += statics(i) + half(i) + specials(i) + finals(CIRCLE, i) + inherited(SHAPES[i & 1]);
        sum += named(NAMED[i % 4 == 0 ? 1 : 0]) + byDefault(NAMED[i & 1]) + object(NAMED[0]);
        sum += lambda(OPERATORS[i % 4 == 0 ? 1 : 0]) + joins(i);
        return sum + factorial(6) + even(10) + hidden(NAMED[i & 1]) + switches(i % 40) + array(i) + trivial(CIRCLE);
    }

    static int one(Shape s) {
        return s.area();
    }

    static int two(Shape s) {
        return s.area();
    }

    static int several(Shape s) {
        return s.area();
    }

    static int statics(int x) {
        int sum = 0;
        for (int i = 0; i < 3; i++) {
            sum += leaf(x + i);
        }
        return sum;
    }

    static int leaf(int x) {
        return x * 31 + 7;
    }

    static int half(int x) {
        return (x & 1) == 0 ? leaf(x) : x;
    }

    /** A constructor, a private method, a super method. */
    static int specials(int x) {
        return new Pair(x, 2).total();
    }

    static int finals(Circle c, int x) {
        return c.fixed(x);
    }

    static int inherited(Shape s) {
        return s.common();
    }

    static int named(Named n) {
        return n.number();
    }

    static int byDefault(Named n) {
        return n.twice();
    }

    static int object(Named n) {
        return n.hashCode();
    }

    static int lambda(IntUnaryOperator f) {
        return f.applyAsInt(3);
    }

    static int joins(int x) {
        return ("a" + x).length();
    }

    static int factorial(int n) {
        return n <= 1 ? 1 : n * factorial(n - 1);
    }

    static boolean odd(int n) {
        return n != 0 && even(n - 1) != 0;
    }

    static int even(int n) {
        return n == 0 || odd(n - 1) ? 1 : 0;
    }

    static int hidden(Named n) {
        return n.open();
    }

    /** Instructions of variable length before a call. */
    static int switches(int x) {
        switch (x) {
            case 0: case 1: case 2: case 3: case 4: case 5: case 6: case 7:
                x += 2;
                break;
            default:
                x -= 1;
        }
        switch (x) {
            case 1000:
                x += 3;
                break;
            case -7: case 30_000: case 12: case 77: case 99: case 123:
                x += 4;
                break;
            default:
                x += 5;
        }
        return leaf(x);
    }

    static int array(int x) {
        int[] a = {x};
        return a.clone()[0] + CIRCLE.value;
    }

    /** A getter, which no compiler keeps as a call. */
    static int trivial(Circle c) {
        return c.getValue();
    }

    interface Named {
        int number();

        default int twice() {
            return 2 * number();
        }

        private int secret() {
            return 3;
        }

        default int open() {
            return secret();
        }
    }

    abstract static class Shape {
        abstract int area();

        int common() {
            return 11;
        }
    }

    static class Circle extends Shape implements Named {
        int value = 4;

        @Override
        int area() {
            return 1;
        }

        @Override
        public int number() {
            return 1;
        }

        @Override
        public int hashCode() {
            return 5;
        }

        final int fixed(int x) {
            return x + value;
        }

        int getValue() {
            return value;
        }
    }

    static class Square extends Shape implements Named {
        @Override
        int area() {
            return 2;
        }

        @Override
        public int number() {
            return 2;
        }

        @Override
        public int twice() {
            return 7;
        }
    }

    static class Line extends Shape {
        @Override
        int area() {
            return 3;
        }
    }

    static class Point extends Shape {
        @Override
        int area() {
            return 4;
        }
    }

    static class Base {
        final int x;

        Base(int x) {
            this.x = x;
        }

        int total() {
            return x;
        }
    }

    static class Pair extends Base {
        final int y;

        Pair(int x, int y) {
            super(x);
            this.y = y;
        }

        private int own() {
            return y;
        }

        @Override
        int total() {
            return super.total() + own();
        }
    }
}
