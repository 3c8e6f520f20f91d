package guest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;

/**
 * Runs a program whose events are known, on orders.
 *
 * <p>The first argument names the program. The line {@code run THREADS AMOUNT} makes it work; the answer is its events,
 * a line {@code checksum HEX}, and {@code done}. The end of the input ends the program.
 */
public final class Steered {
    private Steered() {}

    public static void main(String[] args) throws Exception {
        Events program = Events.named(args[0]);
        System.out.println("ready pid " + pid());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            if (words.length != 3 || !words[0].equals("run")) {
                throw new IOException("unknown order: " + order);
            }
            long checksum = program.run(Integer.parseInt(words[1]), Integer.parseInt(words[2]), System.out);
            System.out.println("checksum " + Long.toHexString(checksum));
            System.out.println("done");
        }
    }

    /** This process's id. The name of a JVM is PID@HOST. */
    private static String pid() {
        return ManagementFactory.getRuntimeMXBean().getName().split("@")[0];
    }
}
