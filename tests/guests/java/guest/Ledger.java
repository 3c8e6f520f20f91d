package guest;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * What the workers' CPU time went into since the last reset.
 *
 * <p>Printed as one line {@code truth MEASURE NAME NANOS} for each claim, the facts of the program, and one line
 * {@code cpu NANOS} for the whole CPU time of all workers: shares are taken of that.
 */
final class Ledger {
    private final Map<String, Long> nanosByClaim = new TreeMap<>();
    private final Map<CpuClock, Long> startByClock = new HashMap<>();
    private final List<String> facts = new ArrayList<>();

    /** Counts the clock's thread among the workers, from now on. */
    synchronized void enrol(CpuClock clock) {
        startByClock.computeIfAbsent(clock, CpuClock::nanos);
    }

    /** Adds a line that is true of every recording of the program. */
    synchronized void fact(String line) {
        facts.add(line);
    }

    synchronized void add(List<Claim> claims, long nanos) {
        for (Claim claim : claims) {
            String key = claim.measure().name().toLowerCase(Locale.ROOT) + " " + claim.name();
            nanosByClaim.merge(key, nanos, Long::sum);
        }
    }

    synchronized void reset() {
        nanosByClaim.clear();
        startByClock.replaceAll((clock, start) -> clock.nanos());
    }

    synchronized void print(PrintStream out) {
        long cpu = 0;
        for (Map.Entry<CpuClock, Long> worker : startByClock.entrySet()) {
            cpu += worker.getKey().nanos() - worker.getValue();
        }
        nanosByClaim.forEach((claim, nanos) -> out.println("truth " + claim + " " + nanos));
        facts.forEach(out::println);
        out.println("cpu " + cpu);
    }
}
