package suite;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import scala.collection.JavaConversions;
import scala.tools.nsc.Global;
import scala.tools.nsc.Settings;
import scala.tools.nsc.reporters.StoreReporter;

/** The Scala compiler compiles implicits and pattern matches: very deep stacks. */
final class Scalac implements Program {
    private static final String SOURCE = System.getProperty("suite.source", "bench.scala");

    private Path source;

    @Override
    public void setUp() throws IOException {
        source = Files.createTempDirectory("scalac").resolve(SOURCE);
        source.toFile().deleteOnExit();
        source.getParent().toFile().deleteOnExit();
        try (InputStream text = Input.stream(SOURCE)) {
            Files.copy(text, source);
        }
    }

    @Override
    public long iterate() throws IOException {
        Path classes = Files.createTempDirectory("scalac");
        Settings settings = new Settings();
        settings.processArgumentString("-usejavacp -nowarn -d " + classes);
        StoreReporter reporter = new StoreReporter();
        Global compiler = new Global(settings, reporter);
        Global.Run run = compiler.new Run();
        run.compile(JavaConversions.asScalaBuffer(List.of(source.toString())).toList());
        if (reporter.hasErrors()) {
            throw new IllegalStateException(SOURCE + " does not compile: " + reporter.infos());
        }
        return new Checksum().consume(classes).value();
    }
}
