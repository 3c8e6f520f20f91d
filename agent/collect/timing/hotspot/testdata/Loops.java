import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;

/**
 * A program that times a loop of its own. Orders: "truth" forgets what was timed, times for a second or longer, and answers how
 * long an iteration takes, in nanoseconds of CPU time: other programs may interrupt each of the invocations, which are long. Arguments: which loop, how many iterations an invocation has, and how many rounds of arithmetic an
 * iteration takes where it calls a method.
 */
public class Loops {
    static volatile int sink;
    static volatile boolean sampling;
    static final long[] times = new long[1 << 16];
    static final int ENOUGH = 20;
    static volatile int count;
    static final ThreadMXBean threads = ManagementFactory.getThreadMXBean();

    static long clock() {
        return threads.getCurrentThreadCpuTime();
    }

    static final class Node {
        final Node next;
        final int rounds;

        Node(Node next, int rounds) {
            this.next = next;
            this.rounds = rounds;
        }
    }

    static int step(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x = (x ^ x >>> 29) * 6364136223846793005L;
        }
        return (int) (x >>> 32);
    }

    /** A counted loop, which C2 unrolls. */
    static int counted(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x = (x ^ x >>> 29) * 6364136223846793005L;
        }
        return (int) (x >>> 32);
    }

    /** Counts by 3, and does what cannot be unrolled as well. */
    static int dividing(int n) {
        long x = n;
        for (int i = 3 * n; i > 0; i -= 3) {
            x = (x | 0x4000000000000001L) / (i | 7) ^ x;
        }
        return (int) (x >>> 32);
    }

    /** Two loops, of which the outer one calls nothing. */
    static int nested(int n, int inner) {
        long x = n;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < inner; j++) {
                x = (x ^ x >>> 29) * 6364136223846793005L;
            }
            x ^= i;
        }
        return (int) (x >>> 32);
    }

    /** A call in each iteration. */
    static int calling(int n, int rounds) {
        int x = 0, i = 0;
        while (i < n) {
            x += step(rounds);
            i++;
        }
        return x;
    }

    /** A call in each iteration, and no number of it. */
    static int listed(Node list) {
        int x = 0;
        for (Node at = list; at != null; at = at.next) {
            x += step(at.rounds);
        }
        return x;
    }

    /** Never returns: only OSR code of it runs. Takes the time itself, of some iterations at once. */
    static void endless(int n, int rounds) {
        int x = 0;
        long begin = clock();
        for (int i = 0; ; i++) {
            x += step(rounds);
            if (i % n == n - 1) {
                begin = took(begin);
                sink = x;
            }
        }
    }

    static long took(long begin) {
        long end = clock();
        if (sampling && count < times.length) {
            times[count++] = end - begin;
        }
        return clock();
    }

    static int once(String mode, int n, int rounds, Node list) {
        switch (mode) {
        case "counted":
            return counted(n);
        case "dividing":
            return dividing(n);
        case "nested":
            return nested(n, rounds);
        case "calling":
            return calling(n, rounds);
        case "listed":
            return listed(list);
        default:
            throw new IllegalArgumentException(mode);
        }
    }

    static void run(String mode, int n, int rounds) {
        if (mode.equals("endless")) {
            endless(n, rounds);
        }
        Node list = null;
        for (int i = 0; i < n; i++) {
            list = new Node(list, rounds);
        }
        for (;;) {
            long begin = clock();
            int x = once(mode, n, rounds, list);
            took(begin);
            sink += x;
        }
    }

    /** The mean from the lowest tenth to the median: other programs make invocations longer, never shorter. */
    static double lower(long[] all, int n) {
        long[] sorted = Arrays.copyOf(all, n);
        Arrays.sort(sorted);
        long sum = 0;
        int from = n / 10, to = Math.max(n / 2, n / 10 + 1);
        for (int i = from; i < to; i++) {
            sum += sorted[i];
        }
        return (double) sum / (to - from);
    }

    public static void main(String[] args) throws Exception {
        sun.misc.Signal.handle(new sun.misc.Signal("TRAP"), trap -> { }); // some hypervisors lose the cause of a debug exception
        int n = Integer.parseInt(args[1]), rounds = Integer.parseInt(args[2]);
        Thread thread = new Thread(() -> run(args[0], n, rounds), "looping");
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String order = in.readLine(); order != null; order = in.readLine()) {
            count = 0;
            sampling = true;
            do {
                Thread.sleep(1000);
            } while (count < ENOUGH);
            sampling = false;
            Thread.sleep(20);
            System.out.println(lower(times, count) / n);
            System.out.println("done");
        }
    }
}
