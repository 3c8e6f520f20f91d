package suite;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import org.apache.xerces.parsers.DOMParser;
import org.apache.xerces.parsers.SAXParser;
import org.w3c.dom.NamedNodeMap;
import org.w3c.dom.Node;
import org.xml.sax.Attributes;
import org.xml.sax.InputSource;
import org.xml.sax.SAXException;
import org.xml.sax.helpers.DefaultHandler;

/** Xerces parses an auction site into a document and into events. */
final class Xerces implements Program {
    private static final int ITEMS = 10_000;
    private static final int PARSES = 8;

    private byte[] document;

    @Override
    public void setUp() {
        document = AuctionSite.document(Input.items(ITEMS));
    }

    @Override
    public long iterate() throws IOException, SAXException {
        Checksum checksum = new Checksum();
        for (int i = 0; i < PARSES; i++) {
            DOMParser dom = new DOMParser();
            dom.parse(source());
            add(checksum, dom.getDocument());

            SAXParser sax = new SAXParser();
            sax.setContentHandler(new DefaultHandler() {
                @Override
                public void startElement(String uri, String localName, String name, Attributes attributes) {
                    checksum.add(name).add(attributes.getLength());
                }
            });
            sax.parse(source());
        }
        return checksum.value();
    }

    private InputSource source() {
        return new InputSource(new ByteArrayInputStream(document));
    }

    private static void add(Checksum checksum, Node node) {
        checksum.add(node.getNodeName());
        NamedNodeMap attributes = node.getAttributes();
        for (int i = 0; attributes != null && i < attributes.getLength(); i++) {
            checksum.add(attributes.item(i).getNodeValue());
        }
        for (Node child = node.getFirstChild(); child != null; child = child.getNextSibling()) {
            add(checksum, child);
        }
    }
}
