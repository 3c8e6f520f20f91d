package guest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Runs one program, and reports the cost of its work.
 *
 * <p>The program named by the first argument works until standard input ends. A line {@code truth FROM TO} there, in
 * milliseconds since 1970, requests its work in between; the answer ends with the line {@code done}.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        Program program = Program.named(args[0]);
        Ledger ledger = new Ledger();
        program.start(ledger);
        System.out.println("ready pid " + ProcessHandle.current().pid());
        obey(ledger);
        System.exit(0); // the workers never end by themselves
    }

    private static void obey(Ledger ledger) throws IOException {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            if (words.length != 3 || !words[0].equals("truth")) {
                throw new IOException("unknown order: " + order);
            }
            ledger.print(System.out, Long.parseLong(words[1]), Long.parseLong(words[2]));
            System.out.println("done");
        }
    }
}
