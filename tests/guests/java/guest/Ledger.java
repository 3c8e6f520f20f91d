package guest;

import java.io.PrintStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What the workers' CPU time went into, piece by piece. */
final class Ledger {
    /** Some minutes' entries; older ones are forgotten. */
    private static final int MAX_ENTRIES = 200_000;

    private final Deque<Entry> entries = new ArrayDeque<>();
    private final List<String> facts = new ArrayList<>();

    /** Begins an entry of the calling thread; closing it ends it. */
    Entry open(List<Claim> claims, CpuClock clock) {
        Entry entry = new Entry(claims, clock);
        synchronized (this) {
            if (entries.size() == MAX_ENTRIES) {
                entries.removeFirst();
            }
            entries.addLast(entry);
        }
        return entry;
    }

    /** Adds a line that is true at any time. */
    synchronized void fact(String line) {
        facts.add(line);
    }

    /**
     * Prints what the time between two moments of the wall clock went into: a line {@code truth MEASURE NAME NANOS} for
     * each claim, the facts, and a line {@code cpu NANOS} for the CPU time of all workers, of which shares are taken.
     *
     * <p>An entry counts if it ended in the window. Claims of others that were going on in it are named, with what is
     * known.
     */
    synchronized void print(PrintStream out, long fromMillis, long toMillis) {
        Map<String, Long> nanosByClaim = new TreeMap<>();
        Map<CpuClock, Long> first = new HashMap<>();
        Map<CpuClock, Long> last = new HashMap<>();
        for (Entry entry : entries) {
            boolean counts = entry.endedIn(fromMillis, toMillis);
            if (counts) {
                first.putIfAbsent(entry.clock(), entry.endNanos() - entry.nanos());
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
