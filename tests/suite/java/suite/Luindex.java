package suite;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.SerialMergeScheduler;
import org.apache.lucene.store.ByteBuffersDirectory;

/** Lucene indexes sources of the JDK in memory. */
final class Luindex implements Program {
    private static final double BUFFER_MEGABYTES = 8;
    private static final String TREE = System.getProperty("suite.tree", "java.base/java/util");

    private final List<String> texts = new ArrayList<>();

    @Override
    public void setUp() throws IOException {
        List<Path> files;
        try (Stream<Path> walk = Files.walk(Input.jdkSources().resolve(TREE))) {
            files = walk.filter(path -> path.toString().endsWith(".java")).sorted().collect(Collectors.toList());
        }
        for (Path file : files) {
            texts.add(Files.readString(file));
        }
    }

    @Override
    public long iterate() throws IOException {
        try (ByteBuffersDirectory index = new ByteBuffersDirectory()) {
            write(index);
            try (DirectoryReader reader = DirectoryReader.open(index)) {
                return new Checksum()
                        .add(reader.numDocs())
                        .add(reader.getSumTotalTermFreq("text"))
                        .value();
            }
        }
    }

    private void write(ByteBuffersDirectory index) throws IOException {
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer())
                .setMergeScheduler(new SerialMergeScheduler())
                .setRAMBufferSizeMB(BUFFER_MEGABYTES);
        try (IndexWriter writer = new IndexWriter(index, config)) {
            for (int i = 0; i < texts.size(); i++) {
                Document document = new Document();
                document.add(new StringField("id", Integer.toString(i), Field.Store.YES));
                document.add(new TextField("text", texts.get(i), Field.Store.NO));
                writer.addDocument(document);
            }
            writer.forceMerge(1);
        }
    }
}
