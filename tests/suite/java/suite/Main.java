package suite;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs iterations of one program when told to.
 *
 * <p>The line {@code run N} on standard input runs N iterations, on a thread named {@code suite}. Each prints what it
 * took and its checksum, and {@code done} follows the last one. The end of the input ends the JVM.
 */
public final class Main {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Main() {}

    public static void main(String[] args) throws Exception {
        sun.misc.Signal.handle(new sun.misc.Signal("TRAP"), trap -> { }); // some hypervisors lose the cause of a debug exception
        PrintStream out = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream())); // programs print too
        Locale.setDefault(Locale.ROOT);

        Program program = Program.named(args[0]);
        ExecutorService suite = Executors.newSingleThreadExecutor(task -> new Thread(task, "suite"));
        suite.submit(() -> {
            program.setUp();
            return null;
        }).get();
        out.println("ready pid " + ProcessHandle.current().pid());

        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            int iterations = iterations(order);
            for (int i = 0; i < iterations; i++) {
                out.println(suite.submit(() -> iterate(program)).get());
            }
            out.println("done");
        }
        System.exit(0); // programs may have left threads
    }

    private static int iterations(String order) throws IOException {
        String[] words = order.split(" ");
        if (words.length != 2 || !words[0].equals("run")) {
            throw new IOException("unknown order: " + order);
        }
        return Integer.parseInt(words[1]);
    }

    /** The CPU time is the whole process's, its compilers and collectors included. */
    private static String iterate(Program program) throws Exception {
        long cpu = SYSTEM.getProcessCpuTime();
        long wall = System.nanoTime();
        long checksum = program.iterate();
        wall = System.nanoTime() - wall;
        cpu = SYSTEM.getProcessCpuTime() - cpu;
        return String.format("iter wall_ns %d cpu_ns %d checksum %016x", wall, cpu, checksum);
    }
}
