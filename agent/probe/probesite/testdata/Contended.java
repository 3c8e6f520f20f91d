import java.util.Scanner;

/** On each line of input, threads contend for one monitor and wait at it; all are gone when it is answered. */
public class Contended {
    static final Object LOCK = new Object();
    static long count;

    static void work() {
        for (int n = 0; n < 2_000; n++) {
            synchronized (LOCK) {
                for (int i = 0; i < 200; i++) {
                    count += i ^ n;
                }
                if (n % 50 == 0) {
                    LOCK.notifyAll();
                    try {
                        LOCK.wait(1);
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                }
            }
        }
    }

    public static void main(String[] args) throws InterruptedException {
        System.out.println("ready pid " + ProcessHandle.current().pid());
        for (Scanner in = new Scanner(System.in); in.hasNextLine(); ) {
            in.nextLine();
            Thread[] threads = new Thread[4];
            for (int i = 0; i < threads.length; i++) {
                threads[i] = new Thread(Contended::work);
                threads[i].start();
            }
            for (Thread t : threads) {
                t.join();
            }
            System.out.println("done");
        }
    }
}
