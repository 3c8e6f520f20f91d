package guest;

import java.util.function.LongSupplier;

/**
 * The template of the class whose compiled {@code caller} depends on {@link Leaf000000} not being loaded: as long as
 * there is one {@code value}, the compilers inline it.
 */
public class Base000000 implements Deopt.Caller {
    public Base000000() {}

    @Override
    public long call(LongSupplier middle) {
        return caller000000(this, middle);
    }

    static long caller000000(Base000000 self, LongSupplier middle) {
        return self.value() + middle.getAsLong() + self.value();
    }

    long value() {
        return 1;
    }
}
