import java.util.Scanner;

/** Calls whose ratios are known. A step calls a 1, b 2, g 1, h 1, c 3 from g and 1 from h, d 8, e 1, f 2. */
public class Known {
    long s;
    int a(int x) { s += x; return x + 1; }
    static int b(int x) { return x * 7 ^ 2; }
    int c(int x) { s += 2 * x; return x * 3; }
    int d(int x) { s -= x; return x - 1; }
    int e(int x) { s += x & 3; return x; }
    int f(int x) { s += x | 3; return x; }
    int g(int x) {
        int r = 0;
        for (int i = 0; i < 3; i++) {
            r += c(x + i);
        }
        return r + e(x);
    }
    int h(int x) {
        int r = c(x);
        for (int i = 0; i < 8; i++) {
            r += d(x + i);
        }
        return r + f(x) + f(x + 1);
    }
    int step(int i) { return a(i) + b(i) + b(i + 1) + g(i) + h(i); }

    static volatile long result;

    void work() {
        for (int i = 0;; i++) {
            result += step(i);
        }
    }

    public static void main(String[] args) {
        sun.misc.Signal.handle(new sun.misc.Signal("TRAP"), trap -> { }); // some hypervisors lose the cause of a debug exception
        for (int n = Integer.parseInt(args[0]); n > 0; n--) {
            Thread worker = new Thread(() -> new Known().work(), "worker " + n);
            worker.setDaemon(true);
            worker.start();
        }
        System.out.println("ready pid " + ProcessHandle.current().pid());
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            in.nextLine();
            System.out.println("done");
        }
    }
}
