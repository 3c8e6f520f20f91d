package guest;

import java.io.PrintStream;
import java.util.SplittableRandom;

/**
 * Stores references to new objects into old ones, each into a card of 512 bytes of its own: the amount is how many rounds the
 * threads go, of {@link #STORES} stores each. A collection before each round makes all objects old and all cards clean.
 *
 * <p>A line {@code card METHOD CLASS TIMES} reports how many cards a method has made dirty by stores into objects of the
 * class. The next method is drawn at random. As many stores into new objects make no card dirty.
 */
final class Marking implements Events {
    static class Order {
        Object reference;
        long number;
    }

    /** As large as an Order, of which each card has as many. */
    static final class Customer {
        Object reference;
        long number;
    }

    static final class Item {
        Object reference;
    }

    /** Stores of a thread in a round. */
    static final int STORES = 100_000;

    /** How much later in their order the stores of a round begin: not all rounds fill the queue of cards with the same ones. */
    private static final int STEP = 101;

    /** Bytes of a card. */
    private static final int CARD = 512;

    /** Objects that are side by side, of two classes in turn. One in the middle is stored into, so that no two of these share a card. */
    private static final int GROUP = 2 * CARD / Heap.object(1, 1);

    /** Elements whose references fill a card. */
    private static final int STRIDE = CARD / 4;

    /** Elements of an array. Its first and its last card may have other objects in them, and are not used. */
    private static final int LENGTH = 7 * STRIDE;

    private static final String[] METHODS = {"order", "customer", "item"};
    private static final Class<?>[] CLASSES = {Order.class, Customer.class, Item[].class};

    /** What one thread stores into, in the order of the stores. */
    private static final class Targets {
        final Object[][] groups = new Object[STORES][];
        final int[] slots = new int[STORES];
        final long[] counts = new long[METHODS.length];

        Targets(int thread) {
            SplittableRandom random = new SplittableRandom(thread);
            Item[] items = null;
            int slot = LENGTH;
            for (int i = 0; i < STORES; i++) {
                int lot = random.nextInt(100);
                int which = lot < 50 ? 0 : lot < 80 ? 1 : 2;
                counts[which]++;
                if (which < 2) {
                    Object[] group = new Object[GROUP];
                    for (int k = 0; k < GROUP; k++) {
                        group[k] = k % 2 == 0 ? new Order() : new Customer();
                    }
                    groups[i] = group;
                    slots[i] = GROUP / 2 & ~1 | which;
                    continue;
                }
                if (slot + 2 * STRIDE > LENGTH) {
                    items = new Item[LENGTH];
                    slot = STRIDE;
                }
                groups[i] = items;
                slots[i] = slot;
                slot += STRIDE;
            }
        }
    }

    private Targets[] targets = {};

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        if (targets.length != threads) {
            targets = new Targets[threads];
            for (int i = 0; i < threads; i++) {
                targets[i] = new Targets(i);
            }
        }
        long checksum = 0;
        for (int round = 0; round < amount; round++) {
            System.gc();
            int first = round * STEP % STORES;
            checksum += Crew.run(threads, number -> work(targets[number], first));
        }
        for (int i = 0; i < METHODS.length; i++) {
            long times = 0;
            for (Targets t : targets) {
                times += t.counts[i];
            }
            truth.println("card guest.Marking." + METHODS[i] + " " + CLASSES[i].getTypeName() + " " + times * amount);
        }
        return checksum;
    }

    static long work(Targets targets, int first) {
        long checksum = 0;
        for (int n = 0; n < STORES; n++) {
            int i = (first + n) % STORES;
            Object[] group = targets.groups[i];
            int slot = targets.slots[i];
            Item item = fresh(targets);
            if (group instanceof Item[]) {
                item((Item[]) group, slot, item);
                checksum += 1;
            } else if (group[slot] instanceof Order) {
                order((Order) group[slot], item);
                checksum += 2;
            } else {
                customer((Customer) group[slot], item);
                checksum += 3;
            }
        }
        return checksum;
    }

    static Item fresh(Object reference) {
        Item item = new Item();
        item.reference = reference;
        return item;
    }

    static void order(Order order, Item item) {
        order.reference = item;
    }

    static void customer(Customer customer, Item item) {
        customer.reference = item;
    }

    static void item(Item[] items, int slot, Item item) {
        items[slot] = item;
    }
}
