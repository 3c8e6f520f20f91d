import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.function.LongSupplier;

/**
 * A shop with known answers to five questions.
 *
 * <ul>
 *   <li>Hot is Shop.price.
 *   <li>Shop.receipt allocates nearly all memory, as char arrays.
 *   <li>Clerks wait for the monitor of the Shop$Ledger in Shop$Ledger.add, because the accountant holds it in Shop$Ledger.close.
 *   <li>After the order {@code change}, each request also passes through Shop.loyalty, with most of its time in Shop.points.
 * </ul>
 *
 * <p>It works until standard input ends. Work is in fixed amounts, and each thread rests in proportion to the time that its work took,
 * without that of the change: so shares do not depend on how busy the machine is, and the change costs CPU time.
 */
public final class Shop {
    // Steps of arithmetic, a nanosecond or so each.
    private static final int PRICE = 2_000_000;
    private static final int POINTS = 800_000;
    private static final int CLOSE = 800_000;
    private static final int ADD = 20_000;

    private static final int RECEIPTS = 30;
    private static final int RECEIPT = 10_000; // chars

    private final Ledger ledger = new Ledger();
    private volatile boolean changed;
    private volatile Object printed; // so that no compiler can do without a receipt

    /** What was sold. */
    static final class Ledger {
        private long sum;

        synchronized void add(long cents) {
            long x = sum + cents;
            for (int i = 0; i < ADD; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
            }
            sum = x;
        }

        /** Holds the monitor forty times as long. */
        synchronized void close() {
            long x = sum | 1;
            for (int i = 0; i < CLOSE; i++) {
                x ^= x << 13;
                x ^= x >>> 7;
                x ^= x << 17;
            }
            sum = x;
        }
    }

    public static void main(String[] args) throws IOException {
        Shop shop = new Shop();
        start("request-1", 1.5, shop::request);
        start("accountant", 4, () -> timed(shop.ledger::close));
        for (int i = 1; i <= 3; i++) {
            start("clerk-" + i, 2, () -> timed(shop::sell));
        }
        System.out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (!order.equals("change")) {
                throw new IOException("unknown order: " + order);
            }
            shop.changed = true;
            System.out.println("done");
        }
        System.exit(0); // the threads never end by themselves
    }

    /** Starts a thread that works, and rests so many times as long as the work says that it took, in nanoseconds. */
    private static void start(String name, double rest, LongSupplier work) {
        Thread thread = new Thread(() -> {
            while (true) {
                long millis = Math.max(1, (long) (rest * work.getAsLong() / 1e6));
                try {
                    Thread.sleep(millis);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static long timed(Runnable work) {
        long began = System.nanoTime();
        work.run();
        return System.nanoTime() - began;
    }

    private long request() {
        long began = System.nanoTime();
        long cents = price(System.nanoTime());
        for (int i = 0; i < RECEIPTS; i++) {
            printed = receipt(cents);
        }
        long took = System.nanoTime() - began;
        if (changed) {
            cents += loyalty(cents);
        }
        ledger.add(cents);
        return took;
    }

    private void sell() {
        ledger.add(1);
    }

    static long price(long seed) {
        long x = seed | 1;
        for (int i = 0; i < PRICE; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static char[] receipt(long cents) {
        char[] text = new char[RECEIPT];
        text[0] = (char) cents;
        return text;
    }

    static long loyalty(long cents) {
        long sum = 0;
        for (int year = 0; year < 2; year++) {
            sum += points(cents + year);
        }
        return sum;
    }

    static long points(long cents) {
        long x = cents | 1;
        for (int i = 0; i < POINTS; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            x ^= x >>> 33;
        }
        return x;
    }
}
