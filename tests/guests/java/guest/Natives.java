package guest;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/**
 * Work that is done outside of Java: in an intrinsic stub, in libzip, in libjvm and in the kernel. Each is reached
 * from a Java method of its own, whose total is known.
 */
final class Natives implements Program {
    private static final int KIB = 1024;

    /** How often short work is done in a step, so that the step takes some 50 microseconds. */
    private static final int TIMES = 20;

    private final byte[] bytes = new byte[64 * KIB];
    private final byte[] copy = new byte[4 * KIB * KIB];
    private final byte[] packed = new byte[4 * KIB];
    private final byte[] zeroed = new byte[32 * KIB];
    private final CRC32 crc = new CRC32();
    private final Deflater deflater = new Deflater(Deflater.BEST_SPEED);
    private final String name = new String("a string that was interned");
    private InputStream zeros;

    @Override
    public void start(Ledger ledger) throws IOException {
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (i * 31);
        }
        zeros = new FileInputStream("/dev/zero");
        Worker.start(
                ledger,
                "worker",
                Kind.of(1, this::checksum, Claim.total("guest.Natives.checksum")),
                Kind.of(1, this::deflate, Claim.total("guest.Natives.deflate")),
                Kind.of(1, this::intern, Claim.total("guest.Natives.intern")),
                Kind.of(1, this::read, Claim.total("guest.Natives.read")),
                Kind.of(1, this::fill, Claim.total("guest.Natives.fill")));
    }

    /** CRC32.updateBytes: an intrinsic stub where there is one, else libzip. */
    long checksum() {
        crc.reset();
        for (int i = 0; i < TIMES; i++) {
            crc.update(bytes);
        }
        return crc.getValue();
    }

    /** libzip and libz. */
    long deflate() {
        deflater.reset();
        deflater.setInput(bytes);
        deflater.finish();
        return deflater.deflate(packed);
    }

    /** libjvm's string table. */
    long intern() {
        long hash = 0;
        for (int i = 0; i < 50 * TIMES; i++) {
            hash = hash * 31 + name.intern().hashCode();
        }
        return hash;
    }

    /** The kernel, through libjava. A profiler's signal may cut a read short, so it goes on until it has everything. */
    long read() {
        long total = 0;
        try {
            for (int i = 0; i < TIMES; i++) {
                total += zeros.readNBytes(zeroed, 0, zeroed.length);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return total;
    }

    /** A loop that the compilers turn into a fill or copy stub. */
    long fill() {
        Arrays.fill(copy, 0, KIB * KIB, (byte) 7);
        System.arraycopy(copy, 0, copy, 2 * KIB * KIB, KIB * KIB);
        return copy[3 * KIB * KIB - 1];
    }
}
