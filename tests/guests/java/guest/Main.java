package guest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Runs one program and answers what its work has cost so far.
 *
 * <p>The program named by the first argument works until standard input ends. Lines on standard input steer it,
 * and every answer ends with the line {@code done}:
 *
 * <pre>
 * reset    forget what was measured: a recording begins
 * truth    print what was measured since
 * quit     leave
 * </pre>
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
        for (String order = orders.readLine(); order != null && !order.equals("quit"); order = orders.readLine()) {
            switch (order) {
                case "reset" -> ledger.reset();
                case "truth" -> ledger.print(System.out);
                default -> throw new IllegalArgumentException("unknown order: " + order);
            }
            System.out.println("done");
        }
    }
}
