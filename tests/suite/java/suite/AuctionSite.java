package suite;

import java.nio.charset.StandardCharsets;
import java.util.Random;

/** An XML document of people and of the items they sell, the same one every time. */
final class AuctionSite {
    private static final int SEED = 42;
    private static final String[] WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards boxed their"
                    + " liquor jugs and every gamer could judge how vexed lions fight zebras for keen pixels in our calm"
                    + " matrix of sampled method calls")
            .split(" ");

    private final Random random = new Random(SEED);
    private final StringBuilder xml = new StringBuilder("<?xml version='1.0'?>");

    private AuctionSite() {}

    /** The document with so many people and so many items, in UTF-8. */
    static byte[] document(int items) {
        AuctionSite site = new AuctionSite();
        site.xml.append("<site><people>");
        for (int i = 0; i < items; i++) {
            site.person(i);
        }
        site.xml.append("</people><items>");
        for (int i = 0; i < items; i++) {
            site.item(i, items);
        }
        site.xml.append("</items></site>");
        return site.xml.toString().getBytes(StandardCharsets.UTF_8);
    }

    private void person(int id) {
        xml.append("<person id='p").append(id).append("'><name>").append(sentence(2)).append("</name><age>");
        xml.append(18 + random.nextInt(60)).append("</age><city>c").append(random.nextInt(50));
        xml.append("</city></person>");
    }

    private void item(int id, int people) {
        xml.append("<item id='i").append(id).append("' seller='p").append(random.nextInt(people));
        xml.append("' price='").append(random.nextInt(10_000)).append("'><name>").append(sentence(3));
        xml.append("</name><desc>").append(sentence(20)).append("</desc></item>");
    }

    private String sentence(int words) {
        StringBuilder sentence = new StringBuilder();
        for (int i = 0; i < words; i++) {
            sentence.append(WORDS[random.nextInt(WORDS.length)]).append(i + 1 < words ? ' ' : '.');
        }
        return sentence.toString();
    }
}
