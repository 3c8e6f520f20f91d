package calls;

/** Receivers of virtual calls. */
abstract class Shape {
    abstract int area(Context caller, int size);

    static final class Square extends Shape {
        @Override
        int area(Context caller, int size) {
            Context c = caller.enter("calls.Shape$Square.area");
            return Exact.inner(c, size);
        }
    }

    static final class Circle extends Shape {
        @Override
        int area(Context caller, int size) {
            caller.enter("calls.Shape$Circle.area");
            return 3 * size;
        }
    }

    static final class Line extends Shape {
        @Override
        int area(Context caller, int size) {
            Context c = caller.enter("calls.Shape$Line.area");
            return Exact.even(c, 2) * size;
        }
    }
}
