package guest;

import java.io.IOException;

/**
 * Calls a method of four classes in one place. One class has 70 % of the calls: too few for HotSpot to inline its method there.
 *
 * <p>HotSpot counts the two classes that it meets first. So that the frequent one is among them wherever in the loop it begins to count, that
 * class follows each of the others.
 *
 * <p>See {@link Clocked} for its orders.
 */
final class Majority {
    private static final int SHAPES = 1024;

    private static final Shape[] MIXED = new Shape[SHAPES];

    static {
        int random = 12345;
        for (int i = 0; i < SHAPES; i++) {
            random = random * 1103515245 + 12345;
            int percent = (random >>> 16) % 100;
            if (i % 2 == 0 || percent < 40) { // 70 % of all
                MIXED[i] = new Square();
            } else if (percent < 70) {
                MIXED[i] = new Circle();
            } else if (percent < 90) {
                MIXED[i] = new Triangle();
            } else {
                MIXED[i] = new Point();
            }
        }
    }

    private Majority() {}

    public static void main(String[] args) throws IOException {
        Clocked.obey(1, Majority::some);
    }

    static int some(int times) {
        int sum = 0;
        for (int i = 0; i < times; i++) {
            sum += MIXED[i & SHAPES - 1].area(i);
        }
        return sum;
    }

    interface Shape {
        int area(int size);
    }

    static final class Square implements Shape {
        @Override
        public int area(int size) {
            return size * size;
        }
    }

    static final class Circle implements Shape {
        @Override
        public int area(int size) {
            return 3 * size;
        }
    }

    static final class Triangle implements Shape {
        @Override
        public int area(int size) {
            return size >> 1;
        }
    }

    static final class Point implements Shape {
        @Override
        public int area(int size) {
            return 0;
        }
    }
}
