package guest;

import java.io.PrintStream;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The CPU time of the workers, piece by piece.
 *
 * <p>Nothing here waits: a virtual thread that waits for a monitor continues on another carrier (JDK 24 and later),
 * whose clock is not the one with which its entry began.
 */
final class Ledger {
    /** Some minutes' entries; older ones are forgotten. */
    private static final int MAX_ENTRIES = 200_000;

    private final Deque<Entry> entries = new ConcurrentLinkedDeque<>();
    private final AtomicInteger size = new AtomicInteger();
    private final List<String> facts = new CopyOnWriteArrayList<>();

    /** Begins an entry of the calling thread; closing it ends it. */
    Entry open(List<Claim> claims, CpuClock clock) {
        Entry entry = new Entry(claims, clock);
        entries.addLast(entry);
        if (size.incrementAndGet() > MAX_ENTRIES) {
            entries.pollFirst();
            size.decrementAndGet();
        }
        return entry;
    }

    /** Adds a line that is true at any time. */
    void fact(String line) {
        facts.add(line);
    }

    /**
     * Prints how the time between two moments of the wall clock was used: a line {@code truth MEASURE NAME NANOS} for
     * each claim, the facts, and a line {@code cpu NANOS} for the CPU time of all workers, the base of the shares.
     *
     * <p>An entry counts if it ended in the window. Claims of other entries that were active in it are listed, with the
     * part that is known.
     */
    void print(PrintStream out, long fromMillis, long toMillis) {
        Map<String, Long> nanosByClaim = new TreeMap<>();
        Map<CpuClock, Long> first = new HashMap<>();
        Map<CpuClock, Long> last = new HashMap<>();
        for (Entry entry : entries) {
            boolean counts = entry.endedIn(fromMillis, toMillis);
            if (counts) {
                first.merge(entry.clock(), entry.endNanos() - entry.nanos(), Math::min);
                last.merge(entry.clock(), entry.endNanos(), Math::max);
            }
            if (entry.overlaps(fromMillis, toMillis)) {
                for (Claim claim : entry.claims()) {
                    nanosByClaim.merge(claim.toString(), counts ? entry.nanos() : 0, Long::sum);
                }
            }
        }
        long cpu = 0;
        for (Map.Entry<CpuClock, Long> worker : last.entrySet()) {
            cpu += worker.getValue() - first.get(worker.getKey());
        }
        nanosByClaim.forEach((claim, nanos) -> out.println("truth " + claim + " " + nanos));
        facts.forEach(out::println);
        out.println("cpu " + cpu);
    }
}
