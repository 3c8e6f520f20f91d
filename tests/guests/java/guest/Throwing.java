package guest;

import java.io.PrintStream;

/**
 * Throws exceptions of four classes, of which one refuses a stack trace. The amount is how often each thread throws one of them.
 */
final class Throwing implements Events {
    static class Refused extends RuntimeException {
        private static final long serialVersionUID = 1;

        Refused(String message) {
            super(message);
        }
    }

    static final class Often extends Refused {
        private static final long serialVersionUID = 1;

        Often() {
            this("often");
        }

        private Often(String message) {
            super(message);
        }
    }

    /** A constructor that creates another exception, and has that as its cause. */
    static final class Seldom extends Refused {
        private static final long serialVersionUID = 1;

        Seldom() {
            super("seldom");
            initCause(new IllegalArgumentException());
        }
    }

    static final class Light extends RuntimeException {
        private static final long serialVersionUID = 1;

        Light() {
            super(null, null, false, false);
        }
    }

    @Override
    public long run(int threads, int amount, PrintStream truth) throws Exception {
        long checksum = Crew.run(threads, number -> work(amount));
        long times = (long) threads * amount;
        print(truth, "guest.Throwing.often", Often.class, 7 * times / 10);
        print(truth, "guest.Throwing.number", NumberFormatException.class, times / 10);
        print(truth, "guest.Throwing.seldom", Seldom.class, times / 10);
        print(truth, "guest.Throwing$Seldom.<init>", IllegalArgumentException.class, times / 10);
        return checksum;
    }

    private static void print(PrintStream truth, String method, Class<?> type, long times) {
        truth.println("throw " + method + " " + type.getTypeName() + " " + times);
    }

    private static long work(int amount) {
        long x = Burn.SEED;
        for (int i = 0; i < amount; i++) {
            try {
                switch (i % 10) {
                    case 0:
                        x += number("x");
                        break;
                    case 1:
                        seldom();
                        break;
                    case 2:
                        light();
                        break;
                    default:
                        often();
                }
            } catch (RuntimeException e) {
                x = 31 * x + i % 10;
            }
        }
        return x;
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }

    private static void often() {
        throw new Often();
    }

    private static void seldom() {
        throw new Seldom();
    }

    private static void light() {
        throw new Light();
    }
}
