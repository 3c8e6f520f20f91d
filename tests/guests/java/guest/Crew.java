package guest;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;

/**
 * A group of threads named worker-0, worker-1 and so on that do the same work in parallel, and end. With the property guest.virtual they are virtual
 * threads.
 */
final class Crew {
    private Crew() {}

    /** The work of one thread. */
    interface Work {
        /** Does it on the thread of that number, and returns a checksum. */
        long run(int number) throws Exception;
    }

    /** Returns the sum of the threads' checksums when all have ended. */
    static long run(int threads, Work work) throws Exception {
        List<FutureTask<Long>> tasks = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int number = i;
            tasks.add(new FutureTask<>(() -> work.run(number)));
        }
        for (int i = 0; i < threads; i++) {
            start(tasks.get(i), "worker-" + i);
        }
        long checksum = 0;
        for (FutureTask<Long> task : tasks) {
            checksum += task.get();
        }
        return checksum;
    }

    private static void start(Runnable task, String name) throws Exception {
        if (!Boolean.getBoolean("guest.virtual")) {
            new Thread(task, name).start();
            return;
        }
        Object builder = Thread.class.getMethod("ofVirtual").invoke(null); // since JDK 21
        Class<?> type = Class.forName("java.lang.Thread$Builder");
        type.getMethod("start", Runnable.class).invoke(type.getMethod("name", String.class).invoke(builder, name), task);
    }
}
