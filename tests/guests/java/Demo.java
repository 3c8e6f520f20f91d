import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.Deflater;

/**
 * A shop that serves made-up customers, for a first look at a profile. Two threads: "checkout" prices baskets and
 * seals receipts, "back-office" ranks products and archives the day. The work is ordinary on purpose: strings,
 * lambdas, sorting, recursion, a regular expression, and two places where the time is spent outside Java code
 * (SHA-256 is an intrinsic, zip is a native library).
 *
 * Usage: java Demo [SECONDS, default 15]
 */
public final class Demo {
    private record Product(int id, String name, int cents, Category category) {}

    /** Discounts are inherited: the deeper the category, the longer the way to them. */
    private record Category(Category parent, int percentOff) {
        int discount() {
            return percentOff + (parent == null ? 0 : parent.discount());
        }
    }

    private static final Pattern NAME = Pattern.compile("(\\w+)-(\\d+)-(?:red|green|blue)");

    private final List<Product> products = new ArrayList<>();
    private final long deadline;

    private Demo(long deadline) {
        this.deadline = deadline;
        String[] colours = {"red", "green", "blue"};
        Category category = null;
        for (int id = 0; id < 2_000; id++) {
            category = new Category(id % 40 == 0 ? null : category, id % 3 == 0 ? 1 : 0);
            products.add(new Product(id, "article-" + id + "-" + colours[id % 3], 100 + id * 7 % 900, category));
        }
    }

    public static void main(String[] args) throws Exception {
        int seconds = args.length > 0 ? Integer.parseInt(args[0]) : 15;
        Demo shop = new Demo(System.nanoTime() + seconds * 1_000_000_000L);
        Thread checkout = new Thread(shop::checkout, "checkout");
        Thread backOffice = new Thread(shop::backOffice, "back-office");
        checkout.start();
        backOffice.start();
        checkout.join();
        backOffice.join();
    }

    private boolean open() {
        return System.nanoTime() < deadline;
    }

    private void checkout() {
        Random customers = new Random(1);
        long receipts = 0;
        long takings = 0;
        while (open()) {
            List<Product> basket = fillBasket(customers);
            int cents = priceBasket(basket);
            takings += cents;
            receipts += sealReceipt(basket, cents).length > 0 ? 1 : 0;
        }
        System.out.printf("checkout: %d receipts, %d.%02d taken%n", receipts, takings / 100, takings % 100);
    }

    private List<Product> fillBasket(Random customers) {
        List<Product> basket = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            basket.add(products.get(customers.nextInt(products.size())));
        }
        return basket;
    }

    private int priceBasket(List<Product> basket) {
        return basket.stream().mapToInt(p -> p.cents() * (100 - p.category().discount()) / 100).sum();
    }

    private byte[] sealReceipt(List<Product> basket, int cents) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (Product p : basket) {
                digest.update(p.name().getBytes(StandardCharsets.UTF_8));
            }
            return digest.digest(ByteBuffer.allocate(4).putInt(cents).array());
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    private void backOffice() {
        long days = 0;
        long archived = 0;
        while (open()) {
            List<Product> ranked = rankProducts();
            Map<String, Integer> stock = countByColour(ranked);
            archived += archiveDay(ranked, stock);
            days++;
        }
        System.out.printf("back-office: %d days, %d bytes archived%n", days, archived);
    }

    private List<Product> rankProducts() {
        return products.stream()
            .sorted(Comparator.comparingInt(Product::cents).thenComparing(Product::name))
            .collect(Collectors.toList());
    }

    private Map<String, Integer> countByColour(List<Product> ranked) {
        Map<String, Integer> stock = new HashMap<>();
        for (Product p : ranked) {
            if (NAME.matcher(p.name()).matches()) {
                stock.merge(p.name().substring(p.name().lastIndexOf('-')), 1, Integer::sum);
            }
        }
        return stock;
    }

    private int archiveDay(List<Product> ranked, Map<String, Integer> stock) {
        byte[] page = (ranked.stream().map(Product::name).collect(Collectors.joining("\n")) + stock)
            .getBytes(StandardCharsets.UTF_8);
        Deflater zip = new Deflater(Deflater.BEST_SPEED);
        try {
            zip.setInput(page);
            zip.finish();
            return zip.deflate(new byte[page.length + 64]);
        } finally {
            zip.end();
        }
    }
}
