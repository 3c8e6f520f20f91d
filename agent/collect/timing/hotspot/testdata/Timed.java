import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;

/**
 * A program that times a method of its own. Orders: "truth" forgets what was timed, times for a second, and answers how long
 * an invocation takes, in nanoseconds; "calls" answers how often it was invoked. Arguments: what the thread does, and how many rounds of arithmetic an invocation takes.
 */
public class Timed {
    static volatile int sink;
    static volatile boolean sampling;
    static final long[] times = new long[1 << 16];
    static int count;
    static final LongAdder calls = new LongAdder();
    static int rounds;
    static int threads;

    /** The method that is timed. */
    static int work(int n) {
        return arithmetic(n);
    }

    static int arithmetic(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        return (int) (x >>> 32);
    }

    /** A method that calls itself. Each level takes as long as work. */
    static int recursive(int depth, int n) {
        int x = arithmetic(n);
        return depth == 0 ? x : x + recursive(depth - 1, n);
    }

    /** Throws every fourth time. */
    static int throwing(int i, int n) {
        int x = arithmetic(n);
        if (i % 4 == 0) {
            throw new IllegalStateException();
        }
        return x;
    }

    static int nested(int n) {
        return work(n) + work(n) + work(n);
    }

    static int step(String mode, int i) {
        switch (mode) {
        case "sleeping": // 2,000 times a second, once the method is compiled
            if (i > 20000 / threads) {
                LockSupport.parkNanos(threads * 500_000L);
            }
            return work(rounds);
        case "work":
            return work(rounds);
        case "recursive":
            return recursive(3, rounds);
        case "deep":
            return recursive(11, rounds);
        case "nested":
            return nested(rounds);
        case "throwing":
            try {
                return throwing(i, rounds);
            } catch (IllegalStateException e) {
                return 1;
            }
        default:
            throw new IllegalArgumentException(mode);
        }
    }

    static void run(String mode) {
        for (int i = 0; ; i++) {
            long begin = System.nanoTime();
            int x = step(mode, i);
            long end = System.nanoTime();
            sink += x;
            calls.increment();
            if (sampling && count < times.length) {
                times[count++] = end - begin;
            }
            sink += arithmetic(rounds / 4);
        }
    }

    /** The mean from the lowest tenth to the median: other programs make invocations longer, never shorter. */
    static double lower(long[] all, int n) {
        long[] sorted = Arrays.copyOf(all, n);
        Arrays.sort(sorted);
        long sum = 0;
        int from = n / 10, to = n / 2;
        for (int i = from; i < to; i++) {
            sum += sorted[i];
        }
        return (double) sum / (to - from);
    }

    /** What one reading of the clock adds. */
    static double clock() {
        long[] empty = new long[20000];
        for (int i = 0; i < empty.length; i++) {
            long begin = System.nanoTime();
            empty[i] = System.nanoTime() - begin;
        }
        return lower(empty, empty.length);
    }

    public static void main(String[] args) throws Exception {
        sun.misc.Signal.handle(new sun.misc.Signal("TRAP"), trap -> { }); // some hypervisors lose the cause of a debug exception
        rounds = Integer.parseInt(args[1]);
        threads = Integer.parseInt(args[2]);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> run(args[0]), "timed-" + i);
            thread.setDaemon(true);
            thread.start();
        }
        clock();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String order = in.readLine(); order != null; order = in.readLine()) {
            if (order.equals("calls")) {
                System.out.println(calls.sum());
                System.out.println("done");
                continue;
            }
            count = 0;
            sampling = true;
            Thread.sleep(1000);
            sampling = false;
            Thread.sleep(20);
            System.out.println(lower(times, count) - clock());
            System.out.println("done");
        }
    }
}
