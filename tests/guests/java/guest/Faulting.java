package guest;

import java.io.PrintStream;
import java.util.SplittableRandom;

/**
 * Allocates known objects in memory that was never used before: the amount is how many megabytes each thread allocates.
 * Until the heap's first collection, every page that is touched in a method is touched for the first time, and by an
 * object of the method's class.
 *
 * <p>A line {@code fault METHOD CLASS BYTES} reports what a method has allocated. The next method is drawn at random,
 * so that the memory before an object is mostly of another class.
 */
final class Faulting implements Events {
    /** Two longs, a reference and the header: 32 bytes. */
    static final class Leaf {
        long first;
        long second;
        Object next;

        Leaf(long first) {
            this.first = first;
            second = ~first;
        }
    }

    /** 16 longs and the header: 144 bytes. */
    static final class Broad {
        long a;
        long b;
        long c;
        long d;
        long e;
        long f;
        long g;
        long h;
        long i;
        long j;
        long k;
        long l;
        long m;
        long n;
        long o;
        long p;

        Broad(long value) {
            a = b = c = d = e = f = g = h = value;
            i = j = k = l = m = n = o = p = ~value;
        }
    }

    private static final String[] METHODS = {"leaf", "broad", "bytes", "longs", "ints"};
    private static final Class<?>[] CLASSES = {Leaf.class, Broad.class, byte[].class, long[].class, int[].class};

    private static final int BYTES = 8 << 10;
    private static final int LONGS = 8 << 10;
    private static final int INTS = 256 << 10;

    private static final long[] SIZES = {
        Heap.object(2, 1), Heap.object(16, 0), Heap.array(BYTES, 1), Heap.array(LONGS, 8), Heap.array(INTS, 4)
    };

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        long[][] counts = new long[threads][METHODS.length];
        long checksum = Crew.run(threads, number -> work(new SplittableRandom(number), (long) amount << 20, counts[number]));
        for (int i = 0; i < METHODS.length; i++) {
            long objects = 0;
            for (long[] count : counts) {
                objects += count[i];
            }
            truth.println("fault guest.Faulting." + METHODS[i] + " " + CLASSES[i].getTypeName() + " " + objects * SIZES[i]);
        }
        return checksum;
    }

    static long work(SplittableRandom random, long bytes, long[] counts) {
        Object[] kept = new Object[64];
        long checksum = 0;
        for (int i = 0; bytes > 0; i++) {
            int which = draw(random.nextInt(100_000));
            kept[i % kept.length] = allocate(which, i);
            counts[which]++;
            bytes -= SIZES[which];
            checksum = checksum * 31 + which;
        }
        return checksum;
    }

    /** A lot that gives each method some of the bytes. */
    static int draw(int lot) {
        if (lot < 80_000) {
            return 0;
        }
        if (lot < 99_600) {
            return 1;
        }
        if (lot < 99_960) {
            return 2;
        }
        return lot < 99_997 ? 3 : 4;
    }

    static Object allocate(int which, long value) {
        switch (which) {
            case 0:
                return leaf(value);
            case 1:
                return broad(value);
            case 2:
                return bytes();
            case 3:
                return longs();
            default:
                return ints();
        }
    }

    static Object leaf(long value) {
        return new Leaf(value);
    }

    static Object broad(long value) {
        return new Broad(value);
    }

    static Object bytes() {
        return new byte[BYTES];
    }

    static Object longs() {
        return new long[LONGS];
    }

    static Object ints() {
        return new int[INTS];
    }
}
