package hotspot;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import sun.misc.Unsafe;

/**
 * Objects that can be recognised by what is in them.
 *
 * <p>Prints {@code ready} and where fields are, as {@code class.field=offset}, and waits for the end of standard input.
 * Every object has a number that occurs only in it: {@link #magic}.
 */
public final class ObjectsGuest {
    private ObjectsGuest() {}

    static class Base {
        long first;
        byte small;
        char letter;
    }

    static final class Known extends Base {
        static long shared = magic(7);
        static int sharedNumber;

        boolean flag;
        int number;
        long value;
        double real;
        Object next;
        int[] list;
    }

    static final int OLD = 1;
    static final int FRESH = 2;
    static final int LONGS = 3;
    static final int LARGE = 4;
    static final int CAPTURED = 5;
    static final int PARKED = 6;
    static final int LOCKED = 8;
    static final int LOCAL = 9;

    /** A number that is nowhere else in the heap. Its last four bits are those of {@code i}. */
    static long magic(int i) {
        return Integer.toUnsignedLong(0x7e57_ab1e) << 32 | Integer.toUnsignedLong(0x0dd_ba11 << 4 | i);
    }

    static Known known(int i) {
        Known k = new Known();
        k.value = magic(i);
        return k;
    }

    static LongSupplier captured(long value) {
        return () -> value;
    }

    static Object[] alive;

    public static void main(String[] args) throws Exception {
        Known old = known(OLD);
        Known parked = known(PARKED);
        Known locked = known(LOCKED);
        alive = new Object[] {old, parked, locked, null, null, null, null, null};
        System.gc();
        System.gc();
        StringBuilder said = new StringBuilder("ready");
        for (Class<?> c : new Class<?>[] {Base.class, Known.class, Thread.class}) {
            offsets(c, said);
        }
        LockSupport.parkNanos(locked, 1); // everything needed is loaded
        Thread parks = new Thread(() -> {
            alive[7] = known(LOCAL);
            while (true) {
                LockSupport.park(parked);
            }
        }, "parks");
        Thread holds = new Thread(() -> {
            synchronized (locked) {
                while (true) {
                    LockSupport.park();
                }
            }
        }, "holds");
        Thread blocks = new Thread(() -> {
            synchronized (locked) {
                throw new AssertionError();
            }
        }, "blocks");
        for (Thread t : new Thread[] {parks, holds, blocks}) {
            t.setDaemon(true);
            t.start();
            while (t.getState() != (t == blocks ? Thread.State.BLOCKED : Thread.State.WAITING)) {
                Thread.sleep(1);
            }
        }
        alive[3] = known(FRESH);
        long[] longs = new long[20];
        longs[11] = magic(LONGS);
        alive[4] = longs;
        long[] large = new long[100_000];
        large[7] = magic(LARGE);
        alive[5] = large;
        alive[6] = captured(magic(CAPTURED));
        System.out.println(said);
        while (System.in.read() >= 0) {
            // until the test is over
        }
    }

    @SuppressWarnings("deprecation")
    private static void offsets(Class<?> c, StringBuilder said) throws Exception {
        Field access = Unsafe.class.getDeclaredField("theUnsafe");
        access.setAccessible(true);
        Unsafe unsafe = (Unsafe) access.get(null);
        for (Field f : c.getDeclaredFields()) {
            boolean isStatic = Modifier.isStatic(f.getModifiers());
            long offset = isStatic ? unsafe.staticFieldOffset(f) : unsafe.objectFieldOffset(f);
            said.append(' ').append(isStatic ? "static:" : "").append(c.getName()).append('.').append(f.getName());
            said.append(':').append(f.getType().getTypeName()).append('=').append(offset);
        }
    }
}
