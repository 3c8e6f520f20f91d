import java.util.Scanner;

/** Methods that enter a known number of monitors in one place each, and that a compiler keeps apart. */
public class Monitors {
    static final Object LOCK = new Object();
    static long sum;
    int count;
    Monitors next;

    synchronized int method1(int n) {
        return count += n;
    }

    static synchronized int static1(int n) {
        sum += n;
        return n;
    }

    int block1(Object o, int n) {
        synchronized (o) {
            count += n;
        }
        return count;
    }

    int constant1(int n) {
        synchronized (LOCK) {
            count += n;
        }
        return count;
    }

    int field1(int n) {
        synchronized (next) {
            count += n;
        }
        return count;
    }

    int nested2(Object a, Object b, int n) {
        synchronized (a) {
            count += n;
            synchronized (b) {
                count ^= n;
            }
        }
        return count;
    }

    int none0(int n) {
        return count += n;
    }

    public static void main(String[] args) {
        Monitors m = new Monitors();
        m.next = new Monitors();
        Object a = new Object();
        Object b = new Object();
        long t = 0;
        for (int n = 0; n < 200_000; n++) {
            t += m.method1(n) + static1(n) + m.block1(a, n) + m.constant1(n) + m.field1(n) + m.nested2(a, b, n) + m.none0(n);
        }
        sum += t;
        System.out.println("ready pid " + ProcessHandle.current().pid());
        new Scanner(System.in).hasNextLine();
    }
}
