package suite;

import java.io.File;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** The JDK's compiler compiles four packages of the JDK. */
final class Javac implements Program {
    private static final List<String> PACKAGES = List.of("stream", "concurrent", "regex", "function");

    private final List<File> files = new ArrayList<>();

    @Override
    public void setUp() throws IOException {
        for (String name : PACKAGES) {
            try (Stream<Path> walk = Files.walk(Input.jdkSources().resolve("java.base/java/util").resolve(name))) {
                walk.filter(path -> path.toString().endsWith(".java"))
                        .filter(path -> !path.endsWith("package-info.java"))
                        .sorted()
                        .forEach(path -> files.add(path.toFile()));
            }
        }
    }

    @Override
    public long iterate() throws IOException {
        Path classes = Files.createTempDirectory("javac");
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter messages = new StringWriter();
        try (StandardJavaFileManager manager = compiler.getStandardFileManager(null, null, null)) {
            boolean compiled = compiler.getTask(
                            messages, manager, null, options(classes), null, manager.getJavaFileObjectsFromFiles(files))
                    .call();
            if (!compiled) {
                throw new IllegalStateException(messages.toString());
            }
        }
        return new Checksum().consume(classes).value();
    }

    /** The sources replace their own module's classes, as in the build of the JDK. */
    private static List<String> options(Path classes) {
        String patch = "java.base=" + Input.jdkSources().resolve("java.base");
        return List.of("-proc:none", "-nowarn", "-implicit:none", "-d", classes.toString(), "--patch-module", patch);
    }
}
