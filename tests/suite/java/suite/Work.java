package suite;

/** Recursive calls, allocations, and a lock that nobody else wants. */
final class Work implements Program {
    private static final int ROUNDS = 6000;
    private static final int TIMES = 1000;
    private static final int DEPTH = 20;
    private static final int BYTES = 64;

    private final Object lock = new Object();
    private final int rounds = Input.items(ROUNDS);
    private byte[] last;
    private long locked;

    @Override
    public long iterate() {
        long sum = 0;
        locked = 0;
        for (int i = 0; i < rounds; i++) {
            sum += fibonacci(DEPTH);
            allocate();
            synchronise();
        }
        return new Checksum().add(sum).add(last.length).add(locked).value();
    }

    private static int fibonacci(int n) {
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    }

    private void allocate() {
        for (int i = 0; i < TIMES; i++) {
            last = new byte[BYTES];
        }
    }

    private void synchronise() {
        for (int i = 0; i < TIMES; i++) {
            synchronized (lock) {
                locked++;
            }
        }
    }
}
