package guest;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;

/** A group of threads named worker-0, worker-1 and so on that do the same work in parallel, and end. */
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
            new Thread(tasks.get(i), "worker-" + i).start();
        }
        long checksum = 0;
        for (FutureTask<Long> task : tasks) {
            checksum += task.get();
        }
        return checksum;
    }
}
