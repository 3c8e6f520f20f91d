package suite;

import java.io.InputStream;
import java.nio.file.Path;

/** Where the programs' input is. */
final class Input {
    private Input() {}

    /** A file that stands beside the suite's own sources. */
    static InputStream stream(String name) {
        InputStream stream = Input.class.getResourceAsStream("/input/" + name);
        if (stream == null) {
            throw new IllegalStateException("input " + name + " is not on the class path");
        }
        return stream;
    }

    /** The root of the JDK's own sources: one directory for each module. */
    static Path jdkSources() {
        return Path.of(System.getProperty("suite.sources"));
    }

    /** How much there is to do: the program's own number of whatever it does, or fewer. */
    static int items(int whole) {
        return Integer.getInteger("suite.items", whole);
    }
}
