package guest;

/** Exceptions that are thrown through compiled and interpreted frames, with a stack trace and without. */
final class Exceptions implements Program {
    private static final int THROWS = 20;
    private static final int CALLS = 40;

    /** An exception whose only cost is its unwinding. */
    private static final class Light extends RuntimeException {
        private static final long serialVersionUID = 1;

        Light() {
            super(null, null, false, false);
        }
    }

    @Override
    public void start(Ledger ledger) {
        Worker.start(
                ledger,
                "worker",
                Kind.of(2, Exceptions::traced, Claim.total("guest.Exceptions.traced")),
                Kind.of(2, Exceptions::untraced, Claim.total("guest.Exceptions.untraced")),
                Kind.of(1, Plain::heavy, Claim.self("guest.Plain.heavy")));
    }

    /** Most of it is in libjvm, which fills in the stack trace. */
    static long traced() {
        long caught = 0;
        for (int i = 0; i < THROWS; i++) {
            try {
                descend(CALLS, false);
            } catch (IllegalStateException e) {
                caught++;
            }
        }
        return caught;
    }

    /** Most of it is in the exception handlers' stubs and in libjvm, which looks for a handler frame by frame. */
    static long untraced() {
        long caught = 0;
        for (int i = 0; i < THROWS; i++) {
            try {
                descend(CALLS, true);
            } catch (Light e) {
                caught++;
            }
        }
        return caught;
    }

    static long descend(int calls, boolean light) {
        if (calls > 0) {
            return descend(calls - 1, light) + 1;
        }
        throw light ? new Light() : new IllegalStateException();
    }
}
