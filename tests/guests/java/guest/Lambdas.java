package guest;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.function.LongUnaryOperator;
import java.util.stream.LongStream;

/** Work in a lambda's body, behind a method handle, and at the end of a stream. */
final class Lambdas implements Program {
    private static final MethodHandle HANDLE;

    /** The compiler's name of the lambda below, reported by the lambda itself. */
    private static String bodyName;

    static {
        try {
            MethodType type = MethodType.methodType(long.class, long.class);
            HANDLE = MethodHandles.lookup().findStatic(Lambdas.class, "handled", type);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final LongUnaryOperator lambda = seed -> {
        if (seed == 0) {
            bodyName = "guest.Lambdas." + methodName();
        }
        long x = seed;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    };

    @Override
    public void start(Ledger ledger) {
        lambda.applyAsLong(0);
        Worker.start(
                ledger,
                "worker",
                Kind.of(3, this::body, Claim.total("guest.Lambdas.body"), Claim.self(bodyName)),
                Kind.of(2, Lambdas::handle, Claim.self("guest.Lambdas.handled")),
                Kind.of(2, Lambdas::stream, Claim.total("guest.Lambdas.stream"), Claim.self("guest.Lambdas.piped")));
    }

    private static String methodName() {
        return StackWalker.getInstance().walk(frames -> frames.skip(1).findFirst().orElseThrow().getMethodName());
    }

    long body() {
        return lambda.applyAsLong(Burn.SEED);
    }

    static long handle() {
        try {
            return (long) HANDLE.invokeExact(1L);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    static long handled(long seed) {
        double x = seed;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return Double.doubleToLongBits(x);
    }

    static long stream() {
        return LongStream.range(0, 4).map(Lambdas::piped).sum();
    }

    static long piped(long seed) {
        long x = seed;
        for (int i = 1; i <= Burn.ROUNDS / 10; i++) {
            x = x / i + Burn.SEED;
        }
        return x;
    }
}
