package guest;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Small loops, to measure what an interruption costs a program that runs from the caches of a CPU.
 *
 * <p>The line {@code run LOOP TIMES} runs one of them; {@code checksum X} and {@code done} follow. The end of the input ends the program.
 */
public final class Loops {
    private static final int SIEVE = 16 << 10; // bytes: half of a usual first-level cache
    private static final int NODES = 64 << 10; // of four bytes: half of a usual second-level cache
    private static final int LOGIC_STEPS = 200_000;
    private static final int STRIDE = 4_099; // a prime: every node is visited once

    private final byte[] composite = new byte[SIEVE];
    private final int[] next = new int[NODES];

    private Loops() {
        for (int i = 0; i < NODES; i++) {
            next[i] = (i + STRIDE) % NODES;
        }
    }

    public static void main(String[] args) throws IOException {
        Loops loops = new Loops();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            if (words.length != 3 || !words[0].equals("run")) {
                throw new IOException("unknown order: " + order);
            }
            System.out.println("checksum " + loops.run(words[1], Integer.parseInt(words[2])));
            System.out.println("done");
        }
    }

    private long run(String loop, int times) throws IOException {
        long sum = 0;
        for (int i = 0; i < times; i++) {
            switch (loop) {
                case "logic":
                    sum = logic(0); // the same in every iteration
                    break;
                case "sieve":
                    sum = sieve();
                    break;
                case "list":
                    sum = list();
                    break;
                default:
                    throw new IOException("unknown loop: " + loop);
            }
        }
        return sum;
    }

    /** Works in registers alone. */
    private static long logic(long seed) {
        long x = seed;
        for (int i = 0; i < LOGIC_STEPS; i++) {
            x ^= x << 13 | i;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    /** Counts primes, as CaffeineMark does, in an array that fits into the first-level cache. */
    private int sieve() {
        java.util.Arrays.fill(composite, (byte) 0);
        int primes = 0;
        for (int i = 2; i < SIEVE; i++) {
            if (composite[i] != 0) {
                continue;
            }
            primes++;
            for (int j = 2 * i; j < SIEVE; j += i) {
                composite[j] = 1;
            }
        }
        return primes;
    }

    /** Follows a list through memory that fits into the second-level cache: each step waits for the one before. */
    private long list() {
        long sum = 0;
        int at = 0;
        do {
            sum += at;
            at = next[at];
        } while (at != 0);
        return sum;
    }
}
