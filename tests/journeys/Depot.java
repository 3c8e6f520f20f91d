import java.io.IOException;

/** A depot with an accountant, who closes the books from time to time. Meanwhile clerks wait for them, and a courier sleeps. It works until standard input ends. */
public final class Depot {
    private final Object books = new Object();
    private long sum;

    /** What a thread does over and over. */
    private interface Work {
        void once() throws InterruptedException;
    }

    public static void main(String[] args) throws IOException {
        Depot depot = new Depot();
        for (int i = 0; i < 50_000; i++) {
            depot.book(0); // until it is compiled: then the JVM says that a thread waits for a monitor
        }
        start("accountant", () -> {
            Thread.sleep(700);
            depot.close();
        });
        for (int i = 1; i <= 3; i++) {
            start("clerk-" + i, () -> {
                Thread.sleep(130);
                depot.book(10);
            });
        }
        start("courier", () -> {
            Thread.sleep(300);
            depot.work(100);
        });
        System.out.println("ready pid " + ProcessHandle.current().pid());
        while (System.in.read() >= 0) {
            // nobody orders anything
        }
        System.exit(0); // the threads never end by themselves
    }

    private static void start(String name, Work work) {
        Thread t = new Thread(() -> {
            try {
                while (true) {
                    work.once();
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }, name);
        t.setDaemon(true);
        t.start();
    }

    private void close() {
        synchronized (books) {
            work(400);
        }
    }

    private void book(long millis) {
        synchronized (books) {
            work(millis);
        }
    }

    /** Uses the CPU for so many milliseconds of time. */
    private void work(long millis) {
        long end = System.nanoTime() + millis * 1_000_000;
        while (System.nanoTime() < end) {
            sum++;
        }
    }
}
