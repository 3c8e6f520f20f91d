package guest;

import java.io.PrintStream;
import java.util.concurrent.Semaphore;

/**
 * A thread that sleeps, works and waits for a monitor in turn, and knows when. The amount is how many rounds it does so.
 *
 * <p>A line {@code stage CAUSE FROM UNTIL} reports what it did from one time to another, by CLOCK_MONOTONIC in nanoseconds.
 */
final class Stages implements Events {
    private static final long SLEEP = 200, WORK = 100, HELD = 300; // ms

    private final Object held = new Object();
    private final Semaphore wanted = new Semaphore(0);
    private volatile boolean taken;
    private volatile boolean over;
    private long inMonitor;

    @Override
    public long run(int workers, int amount, PrintStream truth) throws Exception {
        over = false;
        Thread partner = new Thread(this::hold, "partner");
        partner.start();
        StringBuilder lines = new StringBuilder();
        long checksum = Crew.run(1, number -> {
            for (int i = 0; i < amount; i++) {
                long begin = System.nanoTime();
                Thread.sleep(SLEEP);
                long slept = System.nanoTime();
                taken = false;
                wanted.release();
                long end = slept + WORK * 1_000_000;
                while (System.nanoTime() < end || !taken) {
                    Thread.onSpinWait();
                }
                long worked = System.nanoTime();
                monitor();
                long got = System.nanoTime();
                stage(lines, "sleep", begin, slept);
                stage(lines, "running", slept, worked);
                stage(lines, "monitor", worked, got);
            }
            return amount;
        });
        over = true;
        wanted.release();
        partner.join();
        truth.print(lines);
        return checksum;
    }

    private static void stage(StringBuilder lines, String cause, long from, long until) {
        lines.append("stage ").append(cause).append(' ').append(from).append(' ').append(until).append('\n');
    }

    private void hold() {
        try {
            for (wanted.acquire(); !over; wanted.acquire()) {
                synchronized (held) {
                    taken = true;
                    Thread.sleep(WORK + HELD);
                }
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    void monitor() {
        synchronized (held) {
            inMonitor++;
        }
    }
}
