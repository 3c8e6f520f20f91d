package guest;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;

/**
 * Virtual threads that work at the bottom of two recursions and yield there, so that their outer frames are on the
 * heap rather than on a stack when they go on. Needs JDK 21 and {@code --add-opens java.base/java.lang=ALL-UNNAMED}.
 *
 * <p>A stack that shows one recursion's work under the other one's entry is a wrong one, and so is one with more or fewer calls than
 * there are.
 *
 * <p>With {@code -Dguest.litter=true} another thread makes garbage and keeps some of it, so that the collector moves objects.
 */
final class Virtuals implements Program {
    private static final int THREADS = 8;
    private static final int CALLS = 30;
    private static final long SEGMENT_NANOS = 3_000_000;
    private static final int LITTER = 4096;
    private static final int LITTER_BYTES = 2048;
    private static final int LITTER_BURST = 64;

    private final MethodHandle startVirtualThread;
    private final MethodHandle currentCarrierThread;

    Virtuals() throws ReflectiveOperationException {
        MethodHandles.Lookup lookup = MethodHandles.privateLookupIn(Thread.class, MethodHandles.lookup());
        startVirtualThread = lookup.findStatic(
                Thread.class, "startVirtualThread", MethodType.methodType(Thread.class, Runnable.class));
        currentCarrierThread = lookup.findStatic(
                Thread.class, "currentCarrierThread", MethodType.methodType(Thread.class));
    }

    @Override
    public void start(Ledger ledger) throws Exception {
        ledger.fact("under guest.Virtuals.shift guest.Virtuals.enterShift");
        ledger.fact("under guest.Virtuals.scale guest.Virtuals.enterScale");
        ledger.fact("depth guest.Virtuals.enterShift guest.Virtuals.enterShift guest.Virtuals.shift " + (CALLS + 1));
        ledger.fact("depth guest.Virtuals.enterScale guest.Virtuals.enterScale guest.Virtuals.scale " + (CALLS + 1));
        Kind shift = Kind.of(3, Virtuals::shift, Claim.self("guest.Virtuals.shift"));
        Kind scale = Kind.of(2, Virtuals::scale, Claim.self("guest.Virtuals.scale"));
        if (Boolean.getBoolean("guest.litter")) {
            Thread litter = new Thread(Virtuals::litter, "litter");
            litter.setDaemon(true);
            litter.start();
        }
        for (int i = 0; i < THREADS; i++) {
            try {
                Thread unused = (Thread) startVirtualThread.invokeExact((Runnable) () -> {
                    while (true) {
                        enterShift(CALLS, () -> segment(shift, ledger));
                        enterScale(CALLS, () -> segment(scale, ledger));
                    }
                });
            } catch (Throwable e) {
                throw new AssertionError(e);
            }
        }
    }

    /** Makes some 100 MB of garbage a second, each piece of which lives for a while. */
    private static void litter() {
        byte[][] kept = new byte[LITTER][];
        for (int i = 0; ; i++) {
            kept[i % LITTER] = new byte[LITTER_BYTES];
            if (i % LITTER_BURST == 0) {
                LockSupport.parkNanos(1_000_000);
            }
        }
    }

    static long enterShift(int calls, LongSupplier work) {
        return calls == 0 ? work.getAsLong() : enterShift(calls - 1, work) + 1;
    }

    static long enterScale(int calls, LongSupplier work) {
        return calls == 0 ? work.getAsLong() : enterScale(calls - 1, work) + 1;
    }

    /** Yields the carrier, then works on whatever carrier it gets: the clock of that one counts. */
    private long segment(Kind kind, Ledger ledger) {
        Thread.yield();
        CpuClock clock;
        try {
            clock = CpuClock.of((Thread) currentCarrierThread.invokeExact());
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
        Segment.work(kind, kind.weight() * SEGMENT_NANOS / 2, clock, ledger);
        return 0;
    }

    static long shift() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long scale() {
        double x = 1;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 0.75 + 0.5;
        }
        return Double.doubleToLongBits(x);
    }
}
