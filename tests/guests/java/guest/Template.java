package guest;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/**
 * A class of which any number of copies can be made, each with its own number in all its names.
 *
 * <p>In the template's source the number is {@code 000000}; a copy has another number of six digits in the place of
 * each, so that the class file keeps its layout.
 */
final class Template {
    private static final String PLACEHOLDER = "000000";

    private final String name;
    private final String bytes;

    /** Reads the template of the given simple class name, placeholder included. */
    Template(String simpleName) throws IOException {
        name = Template.class.getPackageName() + "." + simpleName;
        try (InputStream file = Template.class.getResourceAsStream(simpleName + ".class")) {
            bytes = new String(file.readAllBytes(), StandardCharsets.ISO_8859_1);
        }
    }

    /** The name of the copy with the given number. */
    String name(int number) {
        return name.replace(PLACEHOLDER, digits(number));
    }

    /** The class file of the copy with the given number. */
    byte[] classFile(int number) {
        return bytes.replace(PLACEHOLDER, digits(number)).getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String digits(int number) {
        return String.format(Locale.ROOT, "%06d", number);
    }
}
