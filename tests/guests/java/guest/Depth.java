package guest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads, one for each CPU, that work at the bottom of a given number of recursive calls: to measure the cost of
 * walking a stack, with nothing else that changes.
 *
 * <p>The line {@code depth CALLS} sends all of them there; {@code done} follows once they are. 0 makes them idle, as
 * they are at the start. The end of the input ends the program.
 */
public final class Depth {
    /** Pieces of work at the bottom, some 50 ms: the way there and back is less than a thousandth of that. */
    private static final int PIECES = 1_000;

    /** Enough for every method to be compiled before it matters: the interpreter's frames are different. */
    private static final int WARM_UP_DESCENTS = 3_000;

    private static final int WARM_UP_CALLS = 100;
    private static final long REST_NANOS = 5_000_000;

    private static volatile int wanted; // calls
    private static volatile long sink; // so that results are used

    private final CountDownLatch warm;
    private volatile int at; // calls

    private Depth(CountDownLatch warm) {
        this.warm = warm;
    }

    public static void main(String[] args) throws Exception {
        int cpus = Runtime.getRuntime().availableProcessors();
        CountDownLatch warm = new CountDownLatch(cpus);
        List<Depth> workers = new ArrayList<>();
        for (int i = 0; i < cpus; i++) {
            Depth worker = new Depth(warm);
            Worker.start("depth", worker::work);
            workers.add(worker);
        }
        warm.await();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            send(workers, order);
            System.out.println("done");
        }
        System.exit(0); // the workers never end by themselves
    }

    private static void send(List<Depth> workers, String order) throws IOException, InterruptedException {
        String[] words = order.split(" ");
        if (words.length != 2 || !words[0].equals("depth")) {
            throw new IOException("unknown order: " + order);
        }
        wanted = Integer.parseInt(words[1]);
        for (Depth worker : workers) {
            while (worker.at != wanted) {
                Thread.sleep(1);
            }
        }
    }

    private void work() {
        for (int i = 0; i < WARM_UP_DESCENTS; i++) {
            sink = down(WARM_UP_CALLS, 1);
        }
        warm.countDown();
        while (true) {
            int calls = wanted;
            at = calls;
            if (calls == 0) {
                LockSupport.parkNanos(REST_NANOS);
            } else {
                sink = down(calls, PIECES);
            }
        }
    }

    static long down(int calls, int pieces) {
        return calls == 1 ? hold(pieces) : down(calls - 1, pieces) + 1;
    }

    static long hold(int pieces) {
        long x = 0;
        for (int i = 0; i < pieces; i++) {
            x += leaf();
        }
        return x;
    }

    static long leaf() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }
}
