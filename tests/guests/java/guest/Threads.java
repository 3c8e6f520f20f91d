package guest;

/** Four named threads that are busy 40, 30, 20 and 10 percent of the time, with a method each. */
final class Threads implements Program {
    @Override
    public void start(Ledger ledger) {
        start(ledger, "worker-a", 40, Kind.of(2, Plain::heavy, claims("worker-a", "guest.Plain.heavy")));
        start(ledger, "worker-b", 30, Kind.of(2, Plain::medium, claims("worker-b", "guest.Plain.medium")));
        start(ledger, "worker-c", 20, Kind.of(2, Plain::light, claims("worker-c", "guest.Plain.light")));
        start(ledger, "worker-d", 10, Kind.of(2, Threads::own, claims("worker-d", "guest.Threads.own")));
    }

    private static void start(Ledger ledger, String name, int busyPercent, Kind kind) {
        Worker.start(ledger, name, busyPercent, kind);
    }

    private static Claim[] claims(String thread, String method) {
        return new Claim[] {Claim.thread(thread), Claim.self(method)};
    }

    static long own() {
        long x = Burn.SEED;
        for (int i = 0; i < Burn.ROUNDS; i++) {
            x = x * 31 + i;
            x ^= x >>> 11;
        }
        return x;
    }
}
