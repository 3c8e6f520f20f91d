package suite;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.CRC32;

/** A checksum of values in their order. */
final class Checksum {
    private long state;

    Checksum add(long value) {
        state = state * 31 + value;
        state *= 0x9E3779B97F4A7C15L; // an odd constant far from any pattern: every bit moves
        state ^= state >>> 29;
        return this;
    }

    Checksum add(String text) {
        return add(text.hashCode());
    }

    Checksum add(byte[] bytes) {
        CRC32 crc = new CRC32();
        crc.update(bytes);
        return add(crc.getValue());
    }

    /** Adds the sizes of the tree's class files in the order of their names, and deletes the tree. */
    Checksum consume(Path tree) throws IOException {
        List<Path> paths;
        try (Stream<Path> walk = Files.walk(tree)) {
            paths = walk.sorted(Comparator.reverseOrder()).collect(Collectors.toList());
        }
        for (Path path : paths) {
            if (path.toString().endsWith(".class")) {
                add(Files.size(path));
            }
            Files.delete(path);
        }
        return this;
    }

    long value() {
        return state;
    }
}
