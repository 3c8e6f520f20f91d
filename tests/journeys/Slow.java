import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A service whose requests are slow, each time for another reason, which is its argument.
 *
 * <ul>
 *   <li>{@code lock}: requests wait in Slow.reserve for a monitor that the thread stocktaking holds in Slow.count, asleep.
 *   <li>{@code downstream}: Slow.price asks another service, which takes its time.
 *   <li>{@code disk}: Slow.journal has each request written to disk.
 *   <li>{@code queue}: Slow.print gives a task to a pool whose only thread is asleep most of the time.
 *   <li>{@code neighbours}: requests compute in Slow.price, and batch threads keep all CPUs busy.
 *   <li>{@code quota}: requests compute in Slow.price; whoever starts this gives it less CPU time than they need.
 * </ul>
 *
 * <p>It works until standard input ends.
 */
public final class Slow {
    private static final int REQUESTS = 3; // threads
    private static final int PRICE = 2_000_000; // steps of arithmetic, a nanosecond or so each

    private interface Part {
        void run() throws Exception;
    }

    private final Object stock = new Object();
    private long reserved;
    private volatile long priced;

    public static void main(String[] args) throws Exception {
        Slow slow = new Slow();
        switch (args[0]) {
            case "lock":
                start("stocktaking", () -> {
                    slow.count();
                    Thread.sleep(2);
                });
                slow.serve(() -> slow::reserve);
                break;
            case "downstream":
                slow.downstream();
                break;
            case "disk":
                Path file = Files.createTempFile("journal", null);
                file.toFile().deleteOnExit();
                slow.serve(() -> {
                    FileChannel journal = FileChannel.open(file, StandardOpenOption.WRITE);
                    return () -> slow.journal(journal);
                });
                break;
            case "queue":
                ExecutorService printer = Executors.newSingleThreadExecutor(r -> daemon("printer", r));
                slow.serve(() -> () -> slow.print(printer));
                break;
            case "neighbours":
                for (int i = 1; i <= 2 * Runtime.getRuntime().availableProcessors(); i++) {
                    start("batch-" + i, slow::batch);
                }
                slow.serve(() -> slow::price);
                break;
            case "quota":
                slow.serve(() -> slow::price);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        System.out.println("ready pid " + ProcessHandle.current().pid());
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0); // the threads never end by themselves
    }

    private interface Maker {
        Part make() throws Exception;
    }

    /** Starts threads that handle requests, each with its own part that makes them slow. */
    private void serve(Maker maker) throws Exception {
        for (int i = 1; i <= REQUESTS; i++) {
            Part part = maker.make();
            start("request-" + i, () -> handle(part));
        }
    }

    private static Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    private static void start(String name, Part work) {
        daemon(name, () -> {
            try {
                while (true) {
                    work.run();
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }).start();
    }

    private void handle(Part part) throws Exception {
        part.run();
    }

    private void reserve() {
        synchronized (stock) {
            reserved++;
        }
    }

    /** Holds the monitor while it waits for something else. */
    private void count() throws InterruptedException {
        synchronized (stock) {
            Thread.sleep(20);
            reserved = 0;
        }
    }

    private void downstream() throws Exception {
        ServerSocket server = new ServerSocket(0, REQUESTS, InetAddress.getLoopbackAddress());
        serve(() -> {
            Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
            client.setTcpNoDelay(true);
            Socket peer = server.accept();
            peer.setTcpNoDelay(true);
            start("price-service", () -> answer(peer));
            return () -> price(client);
        });
    }

    private void price(Socket service) throws IOException {
        OutputStream question = service.getOutputStream();
        question.write(1);
        InputStream answer = service.getInputStream();
        priced = answer.read();
    }

    private static void answer(Socket client) throws Exception {
        int question = client.getInputStream().read();
        Thread.sleep(15);
        client.getOutputStream().write(question);
    }

    private void journal(FileChannel journal) throws IOException {
        journal.write(ByteBuffer.allocate(4096), 0);
        journal.force(true);
    }

    private void print(ExecutorService printer) throws Exception {
        Future<?> receipt = printer.submit(() -> {
            Thread.sleep(5);
            return null;
        });
        receipt.get();
    }

    private void price() {
        long x = System.nanoTime() | 1;
        for (int i = 0; i < PRICE; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        priced = x;
    }

    /** Work of the same kind, for which nobody waits. */
    private void batch() {
        long x = System.nanoTime() | 1;
        for (int i = 0; i < PRICE; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        priced = x;
    }
}
