package suite;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import javax.xml.transform.Templates;
import javax.xml.transform.TransformerException;
import javax.xml.transform.stream.StreamResult;
import javax.xml.transform.stream.StreamSource;
import org.apache.xalan.processor.TransformerFactoryImpl;

/** Xalan's XSLT interpreter makes a sorted report of an auction site, with keys, number formats and recursion. */
final class Xalan implements Program {
    private static final int ITEMS = 6000;
    private static final int TRANSFORMATIONS = 3;

    private byte[] document;
    private Templates report;

    @Override
    public void setUp() throws TransformerException {
        document = AuctionSite.document(Input.items(ITEMS));
        report = new TransformerFactoryImpl().newTemplates(new StreamSource(Input.stream("report.xsl")));
    }

    @Override
    public long iterate() throws TransformerException {
        Checksum checksum = new Checksum();
        for (int i = 0; i < TRANSFORMATIONS; i++) {
            ByteArrayOutputStream html = new ByteArrayOutputStream(1 << 20);
            StreamSource source = new StreamSource(new ByteArrayInputStream(document));
            report.newTransformer().transform(source, new StreamResult(html));
            checksum.add(html.toByteArray());
        }
        return checksum.value();
    }
}
