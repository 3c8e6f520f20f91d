package guest;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.SplittableRandom;

/**
 * Allocates objects and arrays of known sizes, each kind in a method of its own. The amount is how many each thread
 * allocates.
 *
 * <p>The next kind is drawn at random, as anything periodic could be in step with the ends of allocation buffers. No
 * method is inlined and all return their objects, so that no compiler can eliminate them.
 */
final class Allocating implements Events {
    /** The largest object, which fits into no buffer of the size that the program is run with. */
    private static final int LARGE = 262_144;

    static final class Bare {}

    static final class Pair {
        long first;
        int second;
    }

    static final class Wide {
        long a;
        long b;
        long c;
        long d;
        long e;
        long f;
    }

    /** A method that allocates, its object, and how many of 10,000 objects are of it. */
    private enum Site {
        BARE("bare", Bare.class, 4000),
        PAIR("pair", Pair.class, 2500),
        OTHER_PAIR("otherPair", Pair.class, 1000),
        WIDE("wide", Wide.class, 1500),
        BYTES("bytes", byte[].class, 590),
        REFERENCES("references", Object[].class, 300),
        // The JVM leaves a buffer of 256 KB if it has no more than 4 KB left: this is about as large, the next ones larger.
        INTS("ints", int[].class, 80),
        LONGS("longs", long[].class, 20),
        DOUBLES("doubles", double[].class, 9),
        SHORTS("shorts", short[].class, 1);

        final String method;
        final Class<?> type;
        final int chances;

        Site(String method, Class<?> type, int chances) {
            this.method = method;
            this.type = type;
            this.chances = chances;
        }
    }

    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    private static final Site[] SITES = Site.values();

    /** How many bytes an object of each site has, which depends on the JVM's flags. */
    private static final long[] BYTES = measured();

    /** The site for each of the chances. */
    private static final byte[] LOTS = lots();

    private static byte[] lots() {
        byte[] lots = new byte[10_000];
        int lot = 0;
        for (Site site : SITES) {
            for (int i = 0; i < site.chances; i++) {
                lots[lot++] = (byte) site.ordinal();
            }
        }
        return lots;
    }

    private static long[] measured() {
        final int few = 8;
        long[] bytes = new long[SITES.length];
        Object[] kept = new Object[2 * few];
        for (int site = 0; site < bytes.length; site++) {
            allocated(site, few, kept); // objects that are only allocated the first time
            long once = allocated(site, few, kept);
            bytes[site] = (allocated(site, 2 * few, kept) - once) / few; // without the allocations of the question itself
        }
        return bytes;
    }

    /** The bytes that the JVM says were allocated for so many objects of a site. */
    private static long allocated(int site, int objects, Object[] kept) {
        long before = allocatedBytes();
        for (int i = 0; i < objects; i++) {
            kept[i] = allocate(site);
        }
        return allocatedBytes() - before;
    }

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        long[][] counts = new long[threads][SITES.length];
        long[] allocated = new long[threads]; // as the JVM says
        long checksum = Crew.run(threads, number -> {
            SplittableRandom random = new SplittableRandom(number);
            Object[] kept = new Object[64]; // some objects live a little while
            long before = allocatedBytes();
            long sum = work(random, amount, counts[number], kept);
            allocated[number] = allocatedBytes() - before;
            return sum;
        });
        long jvm = 0;
        for (Site site : SITES) {
            long objects = 0;
            for (long[] count : counts) {
                objects += count[site.ordinal()];
            }
            truth.println("alloc guest.Allocating." + site.method + " " + site.type.getTypeName() + " " + objects + " "
                    + objects * BYTES[site.ordinal()]);
        }
        for (long bytes : allocated) {
            jvm += bytes;
        }
        truth.println("allocated " + jvm);
        return checksum;
    }

    /** Bytes that the calling thread has allocated so far. */
    private static long allocatedBytes() {
        return THREADS.getThreadAllocatedBytes(Thread.currentThread().getId());
    }

    static long work(SplittableRandom random, int objects, long[] counts, Object[] kept) {
        long checksum = 0;
        for (int i = 0; i < objects; i++) {
            int site = LOTS[random.nextInt(LOTS.length)];
            kept[i % kept.length] = allocate(site);
            counts[site]++;
            checksum = checksum * 31 + site;
        }
        return checksum;
    }

    static Object allocate(int site) {
        switch (SITES[site]) {
            case BARE:
                return bare();
            case PAIR:
                return pair();
            case OTHER_PAIR:
                return otherPair();
            case WIDE:
                return wide();
            case BYTES:
                return bytes();
            case REFERENCES:
                return references();
            case INTS:
                return ints();
            case LONGS:
                return longs();
            case DOUBLES:
                return doubles();
            default:
                return shorts();
        }
    }

    static Object bare() {
        return new Bare();
    }

    static Object pair() {
        return new Pair();
    }

    static Object otherPair() {
        return new Pair();
    }

    static Object wide() {
        return new Wide();
    }

    static Object bytes() {
        return new byte[100];
    }

    static Object references() {
        return new Object[64];
    }

    static Object ints() {
        return new int[1000];
    }

    static Object longs() {
        return new long[1024];
    }

    static Object doubles() {
        return new double[4096];
    }

    static Object shorts() {
        return new short[LARGE];
    }
}
