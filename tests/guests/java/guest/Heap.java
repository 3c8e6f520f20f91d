package guest;

/** How large objects are where class pointers and references are compressed, with headers of the usual size. */
final class Heap {
    /** A mark word of 8 bytes, and a class pointer of 4. */
    private static final int HEADER = 12;

    /** A header, and the length of 4 bytes. */
    private static final int ARRAY_HEADER = 16;

    private static final int ALIGNMENT = 8;

    private Heap() {}

    /** The bytes of an object with so many fields of each size. The JVM lays the large ones out first, aligned. */
    static int object(int longs, int ints) {
        int gap = longs > 0 ? 4 : 0; // between the header and the first long, which an int fits into
        int rest = Math.max(0, 4 * ints - gap);
        return aligned(HEADER + gap + 8 * longs + rest);
    }

    /** The bytes of an array. */
    static int array(int length, int elementBytes) {
        return aligned(ARRAY_HEADER + length * elementBytes);
    }

    private static int aligned(int bytes) {
        return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}
