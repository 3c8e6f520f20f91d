package guest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.function.IntUnaryOperator;

/** Work that is timed by the program's own clock of CPU time: a busy machine does not make it slower. */
final class Clocked {
    private static final int TIMES = 1_000_000;

    /** What the work comes to, so that no compiler leaves it out. */
    static volatile int result;

    private Clocked() {}

    /**
     * Works on demand until standard input ends. A line {@code run MILLISECONDS} is answered by {@code ns N}, how many nanoseconds of CPU time a
     * call took, and {@code done}.
     */
    static void obey(int calls, IntUnaryOperator work) throws IOException {
        System.out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            if (words.length != 2 || !words[0].equals("run")) {
                throw new IOException("unknown order: " + order);
            }
            System.out.println(String.format(Locale.ROOT, "ns %.4f", run(Long.parseLong(words[1]), calls, work)));
            System.out.println("done");
        }
    }

    private static double run(long milliseconds, int calls, IntUnaryOperator work) {
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        long began = clock.getCurrentThreadCpuTime();
        long end = System.nanoTime() + milliseconds * 1_000_000;
        long done = 0;
        do {
            result += work.applyAsInt(TIMES);
            done += (long) TIMES * calls;
        } while (System.nanoTime() < end);
        return (double) (clock.getCurrentThreadCpuTime() - began) / done;
    }
}
