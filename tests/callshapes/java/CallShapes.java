import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

/**
 * Programs of different shapes that count their own calls. Every thread counts in an array of its own, which it passes along; the count of an edge
 * is incremented by the caller just before the call. The first lines name the edges; then each line is a time, in ns since 1970, and all counts.
 *
 * <p>java CallShapes SHAPE SECONDS
 */
public final class CallShapes {
    private static final List<String> EDGES = new ArrayList<>();
    private static final List<long[]> COUNTS = new ArrayList<>();

    private static int edge(String caller, String callee) {
        EDGES.add("CallShapes" + caller + " CallShapes" + callee);
        return EDGES.size() - 1;
    }

    private static synchronized long[] counter() {
        long[] n = new long[EDGES.size() + 16];
        COUNTS.add(n);
        return n;
    }

    private static synchronized String counts() {
        StringBuilder line = new StringBuilder();
        long before = System.currentTimeMillis() * 1_000_000;
        line.append(before);
        for (int i = 0; i < EDGES.size(); i++) {
            long sum = 0;
            for (long[] n : COUNTS) {
                sum += n[i];
            }
            line.append(' ').append(sum);
        }
        return line.toString();
    }

    private static volatile long sink;

    // An event loop: one thread waits for events and handles each.

    private static final int DISPATCH = edge(".events", ".dispatch"), FIELD = edge(".dispatch", ".field"), HEX = edge(".encode", ".hex"),
            ENCODE = edge(".dispatch", ".encode"), GET = edge(".dispatch", "$Get.handle"), PUT = edge(".dispatch", "$Put.handle"),
            LIST = edge(".dispatch", "$ListAll.handle");

    interface Handler {
        int handle(int x);
    }

    static final class Get implements Handler {
        public int handle(int x) {
            for (int i = 0; i < 25; i++) {
                x = x * 31 + (x >>> 7);
            }
            return x;
        }
    }

    static final class Put implements Handler {
        private final int[] store = new int[256];

        public int handle(int x) {
            for (int i = 0; i < 60; i++) {
                store[(x + i) & 255] ^= x;
            }
            return store[x & 255];
        }
    }

    static final class ListAll implements Handler {
        public int handle(int x) {
            return new int[] {x, x + 1, x + 2}.length + Integer.bitCount(x);
        }
    }

    static int field(int[] in, int from) {
        int v = 0;
        for (int i = from; i < from + 12; i++) {
            v = v * 10 + (in[i & 63] & 7);
        }
        return v;
    }

    static int hex(byte[] out, int at, int v) {
        out[at & 127] = (byte) "0123456789abcdef".charAt(v & 15);
        return v >>> 4;
    }

    static int encode(long[] n, byte[] out, int v) {
        for (int i = 0; i < 40; i++) {
            n[HEX]++;
            v = hex(out, i, v) + i;
        }
        return v;
    }

    static int dispatch(long[] n, Handler[] handlers, int[] in, byte[] out, int event) {
        int v = 0;
        for (int i = 0; i < 6; i++) {
            n[FIELD]++;
            v ^= field(in, event + i);
        }
        int which = Math.floorMod(event, 5);
        if (which < 3) {
            n[GET]++;
            v += handlers[0].handle(v);
        } else if (which == 3) {
            n[PUT]++;
            v += handlers[1].handle(v);
        } else {
            n[LIST]++;
            v += handlers[2].handle(v);
        }
        n[ENCODE]++;
        return encode(n, out, v);
    }

    static void events(Pipe.SourceChannel source, long end) throws Exception {
        long[] n = counter();
        Handler[] handlers = {new Get(), new Put(), new ListAll()};
        int[] in = new int[64];
        byte[] out = new byte[128];
        ByteBuffer buffer = ByteBuffer.allocateDirect(64);
        source.configureBlocking(false);
        Selector selector = Selector.open();
        source.register(selector, SelectionKey.OP_READ);
        for (int event = 0; System.nanoTime() < end; ) {
            selector.select(100);
            selector.selectedKeys().clear();
            buffer.clear();
            for (int got = source.read(buffer); got > 0; got--) {
                n[DISPATCH]++;
                sink += dispatch(n, handlers, in, out, event++);
            }
        }
    }

    static void eventLoop(long end) throws Exception {
        Pipe pipe = Pipe.open();
        Thread loop = start(() -> events(pipe.source(), end));
        ByteBuffer burst = ByteBuffer.allocateDirect(16);
        while (System.nanoTime() < end) {
            burst.clear();
            pipe.sink().write(burst);
            Thread.sleep(2);
        }
        loop.join();
    }

    // A pool: many small tasks on 16 threads.

    private static final int TASK = edge("$Task.run", ".task"), LOOKUP = edge(".task", ".lookup"), SCORE = edge(".lookup", ".score"),
            RANK = edge(".task", ".rank");

    static double score(double a, int b) {
        double s = a;
        for (int i = 0; i < 8; i++) {
            s += 1 / (s + b + i);
        }
        return s;
    }

    static double lookup(long[] n, Map<Integer, Double> table, int key) {
        Double found = table.get(key & 1023);
        n[SCORE]++;
        return found == null ? score(0, key) : found;
    }

    static int rank(double[] all) {
        Arrays.sort(all);
        return (int) all[all.length / 2];
    }

    static double task(long[] n, Map<Integer, Double> table, int key) {
        double[] all = new double[30];
        for (int i = 0; i < all.length; i++) {
            n[LOOKUP]++;
            all[i] = lookup(n, table, key * 31 + i * 7);
        }
        n[RANK]++;
        return rank(all);
    }

    static final class Task implements Runnable {
        private static final ThreadLocal<long[]> OWN = ThreadLocal.withInitial(CallShapes::counter);
        private final Map<Integer, Double> table;
        private final int key;

        Task(Map<Integer, Double> table, int key) {
            this.table = table;
            this.key = key;
        }

        public void run() {
            long[] n = OWN.get();
            n[TASK]++;
            sink += (long) task(n, table, key);
        }
    }

    static void pool(long end) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(16);
        Map<Integer, Double> table = new HashMap<>();
        for (int i = 0; i < 1000; i += 3) {
            table.put(i, i * 0.5);
        }
        for (int key = 0; System.nanoTime() < end; ) {
            for (int i = 0; i < 8; i++) {
                pool.execute(new Task(table, key++));
            }
            Thread.sleep(5);
        }
        pool.shutdownNow();
    }

    // Requests and responses: each side parks until the other is there.

    private static final int SERVE = edge(".server", ".serve"), AUTH = edge(".serve", ".authenticate"), MIX = edge(".authenticate", ".mix"),
            REPLY = edge(".serve", ".reply"), ESCAPE = edge(".reply", ".escape");

    static long mix(long h, int i) {
        h ^= h >>> 33;
        h *= 0xff51afd7ed558ccdL + i;
        h ^= h >>> 29;
        return h * 31;
    }

    static long authenticate(long[] n, long who) {
        for (int i = 0; i < 64; i++) {
            n[MIX]++;
            who = mix(who, i);
        }
        return who;
    }

    static void escape(StringBuilder out, char c) {
        if (c < 'f') {
            out.append('\\').append(c);
        } else {
            out.append(c);
        }
    }

    static String reply(long[] n, String text) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            n[ESCAPE]++;
            escape(out, text.charAt(i));
        }
        return out.toString();
    }

    static String serve(long[] n, String request) {
        n[AUTH]++;
        long who = authenticate(n, request.hashCode());
        n[REPLY]++;
        return reply(n, Long.toHexString(who) + request);
    }

    static void server(SynchronousQueue<String> in, SynchronousQueue<String> out, long end) throws Exception {
        long[] n = counter();
        while (System.nanoTime() < end) {
            String request = in.poll(100, TimeUnit.MILLISECONDS);
            if (request != null) {
                n[SERVE]++;
                out.offer(serve(n, request), 100, TimeUnit.MILLISECONDS);
            }
        }
    }

    static void requests(long end) throws Exception {
        List<Thread> clients = new ArrayList<>();
        for (int c = 0; c < 4; c++) {
            SynchronousQueue<String> in = new SynchronousQueue<>(), out = new SynchronousQueue<>();
            start(() -> server(in, out, end));
            clients.add(start(() -> {
                for (int i = 0; System.nanoTime() < end; i++) {
                    in.offer("request " + i, 100, TimeUnit.MILLISECONDS);
                    String got = out.poll(100, TimeUnit.MILLISECONDS);
                    sink += got == null ? 0 : got.length();
                    Thread.sleep(1);
                }
            }));
        }
        for (Thread c : clients) {
            c.join();
        }
    }

    // A batch: one saturated thread that parses and sorts records.

    private static final int LOAD = edge(".batch", ".load"), NUMBER = edge(".load", ".number"), COMPARE = edge(".merge", ".compare"),
            MERGE = edge(".merge", ".merge"), SORT = edge(".batch", ".merge");

    static int number(byte[] line, int from) {
        int v = 0;
        for (int i = from; line[i] != ','; i++) {
            v = v * 10 + line[i] - '0';
        }
        return v;
    }

    static int[] load(long[] n, byte[] line, int seed) {
        int[] all = new int[200];
        for (int i = 0; i < all.length; i++) {
            n[NUMBER]++;
            all[i] = number(line, (i * 4 + seed) % (line.length - 8)) * seed % 1009;
        }
        return all;
    }

    static int compare(int a, int b) {
        int x = a % 10 - b % 10;
        return x != 0 ? x : Integer.compare(a, b);
    }

    static void merge(long[] n, int[] all, int[] spare, int from, int to) {
        if (to - from < 2) {
            return;
        }
        int middle = (from + to) >>> 1;
        n[MERGE] += 2;
        merge(n, all, spare, from, middle);
        merge(n, all, spare, middle, to);
        System.arraycopy(all, from, spare, from, to - from);
        for (int i = from, j = middle, k = from; k < to; k++) {
            boolean left = j >= to;
            if (!left && i < middle) {
                n[COMPARE]++;
                left = compare(spare[i], spare[j]) <= 0;
            }
            all[k] = left ? spare[i++] : spare[j++];
        }
    }

    static void batch(long end) {
        long[] n = counter();
        byte[] line = "12,345,6,78,901,23,4,567,89,0,1234,5,67,890,12,34,5,6,".repeat(8).getBytes();
        for (int seed = 1; System.nanoTime() < end; seed++) {
            n[LOAD]++;
            int[] all = load(n, line, seed);
            n[SORT]++;
            merge(n, all, new int[all.length], 0, all.length);
            sink += all[100];
        }
    }

    // A tree: saturated and recursive.

    private static final int INSERT = edge(".grow", ".insert"), DEEPER = edge(".insert", ".insert"), VISIT = edge(".grow", ".visit"),
            VISITS = edge(".visit", ".visit"), WEIGH = edge(".visit", ".weigh");

    static final class Node {
        Node left, right;
        final int key;
        int count;

        Node(int key) {
            this.key = key;
        }
    }

    static Node insert(long[] n, Node at, int key) {
        if (at == null) {
            return new Node(key);
        }
        if (key < at.key) {
            n[DEEPER]++;
            at.left = insert(n, at.left, key);
        } else if (key > at.key) {
            n[DEEPER]++;
            at.right = insert(n, at.right, key);
        } else {
            at.count++;
        }
        return at;
    }

    static int weigh(Node at) {
        return at.count * 3 + (at.key ^ at.key >>> 5) % 17;
    }

    static int visit(long[] n, Node at) {
        if (at == null) {
            return 0;
        }
        n[VISITS] += 2;
        n[WEIGH]++;
        return visit(n, at.left) + weigh(at) + visit(n, at.right);
    }

    static void grow(long[] n, int seed) {
        Node root = null;
        for (int i = 0; i < 300; i++) {
            seed = seed * 1103515245 + 12345;
            n[INSERT]++;
            root = insert(n, root, seed >>> 22);
        }
        for (int i = 0; i < 4; i++) {
            n[VISIT]++;
            sink += visit(n, root);
        }
    }

    private static final int GROW = edge(".tree", ".grow");

    static void tree(long end) {
        long[] n = counter();
        for (int seed = 1; System.nanoTime() < end; seed += 77) {
            n[GROW]++;
            grow(n, seed);
        }
    }

    // An interpreter: saturated, of many small methods behind one call.

    private static final int RUN = edge(".interpreter", ".run"), ADD = edge(".run", "$Add.execute"), MUL = edge(".run", "$Multiply.execute"),
            LOADS = edge(".run", "$Load.execute"), STORES = edge(".run", "$Store.execute"), JUMP = edge(".run", "$Jump.execute"), PUSH = edge("$Load.execute", ".push"),
            POP = edge("$Store.execute", ".pop");

    abstract static class Op {
        final int edge;

        Op(int edge) {
            this.edge = edge;
        }

        abstract int execute(long[] n, int[] s, int pc);
    }

    static void push(int[] s, int v) {
        s[0] = s[0] + 1 & 31;
        s[1 + s[0]] = v;
    }

    static int pop(int[] s) {
        int v = s[1 + s[0]];
        s[0] = s[0] - 1 & 31;
        return v;
    }

    static final class Load extends Op {
        Load() {
            super(LOADS);
        }

        int execute(long[] n, int[] s, int pc) {
            n[PUSH]++;
            push(s, s[40 + (pc & 7)]);
            return pc + 1;
        }
    }

    static final class Store extends Op {
        Store() {
            super(STORES);
        }

        int execute(long[] n, int[] s, int pc) {
            n[POP]++;
            s[40 + (pc & 7)] = pop(s);
            return pc + 1;
        }
    }

    static final class Add extends Op {
        Add() {
            super(ADD);
        }

        int execute(long[] n, int[] s, int pc) {
            s[1 + s[0]] += s[1 + (s[0] - 1 & 31)];
            return pc + 1;
        }
    }

    static final class Multiply extends Op {
        Multiply() {
            super(MUL);
        }

        int execute(long[] n, int[] s, int pc) {
            s[1 + s[0]] *= s[1 + (s[0] - 1 & 31)] | 1;
            return pc + 1;
        }
    }

    static final class Jump extends Op {
        Jump() {
            super(JUMP);
        }

        int execute(long[] n, int[] s, int pc) {
            s[39]++;
            return (s[39] & 63) == 0 ? -1 : 0;
        }
    }

    static int run(long[] n, Op[] program, int[] s) {
        int steps = 0;
        for (int pc = 0; pc >= 0; steps++) {
            Op op = program[pc];
            n[op.edge]++;
            pc = op.execute(n, s, pc);
        }
        return steps;
    }

    static void interpreter(long end) {
        long[] n = counter();
        Op[] program = {new Load(), new Load(), new Add(), new Load(), new Multiply(), new Store(), new Load(), new Add(), new Store(), new Jump()};
        int[] s = new int[64];
        while (System.nanoTime() < end) {
            n[RUN]++;
            sink += run(n, program, s);
        }
    }

    // A schedule: 50 small jobs a second, hardly any time.

    private static final int JOB = edge("$Job.run", ".job"), PROBE = edge(".job", ".probe");

    static long probe(long[] table, int at) {
        long v = 0;
        for (int i = 0; i < 40; i++) {
            v += table[(at * 31 + i * 67) & 4095];
        }
        return v;
    }

    static void job(long[] n, long[] table) {
        for (int i = 0; i < 400; i++) {
            n[PROBE]++;
            table[i] += probe(table, i);
        }
    }

    static final class Job implements Runnable {
        private final long[] n = counter();
        private final long[] table = new long[4096];

        public void run() {
            n[JOB]++;
            job(n, table);
        }
    }

    static void schedule(long end) throws Exception {
        ScheduledExecutorService timer = Executors.newScheduledThreadPool(1);
        timer.scheduleAtFixedRate(new Job(), 0, 20, TimeUnit.MILLISECONDS);
        Thread.sleep((end - System.nanoTime()) / 1_000_000);
        timer.shutdownNow();
    }

    // Phases: every two seconds the same methods do something else.

    private static final int ROUND = edge(".phases", ".round"), COARSE = edge(".round", ".coarse"), FINE = edge(".round", ".fine"),
            CELL = edge(".coarse", ".cell"), CELLS = edge(".fine", ".cell");

    static int cell(int[] grid, int at) {
        int v = grid[at & 1023] + grid[at + 1 & 1023] * 3 - grid[at + 33 & 1023];
        return grid[at & 1023] = v ^ v >>> 3;
    }

    static int coarse(long[] n, int[] grid) {
        int v = 0;
        for (int i = 0; i < 1024; i += 16) {
            n[CELL]++;
            v += cell(grid, i);
        }
        return v;
    }

    static int fine(long[] n, int[] grid) {
        int v = 0;
        for (int i = 0; i < 1024; i++) {
            n[CELLS]++;
            v += cell(grid, i);
        }
        return v;
    }

    static int round(long[] n, int[] grid, boolean late) {
        if (late) {
            n[FINE]++;
            return fine(n, grid);
        }
        n[COARSE]++;
        return coarse(n, grid);
    }

    static void phases(long end) throws Exception {
        long[] n = counter();
        int[] grid = new int[1024];
        for (int i = 1; System.nanoTime() < end; i++) {
            n[ROUND]++;
            sink += round(n, grid, System.nanoTime() / 2_000_000_000L % 2 == 1);
            if (i % 2000 == 0) {
                Thread.sleep(1);
            }
        }
    }

    // Two saturated threads with large methods.

    private static final int BLOCK = edge(".multiply", ".block"), DOT = edge(".block", ".dot"), MULTIPLY = edge(".matrix", ".multiply");

    static double dot(double[] a, double[] b, int row, int column) {
        double sum = 0;
        for (int i = 0; i < 32; i++) {
            sum += a[row * 32 + i] * b[i * 32 + column];
        }
        return sum;
    }

    static void block(long[] n, double[] a, double[] b, double[] c, int at) {
        for (int r = at; r < at + 8; r++) {
            for (int k = 0; k < 32; k++) {
                n[DOT]++;
                c[r * 32 + k] = dot(a, b, r, k);
            }
        }
    }

    static void multiply(long[] n, double[] a, double[] b, double[] c) {
        for (int at = 0; at < 32; at += 8) {
            n[BLOCK]++;
            block(n, a, b, c, at);
        }
    }

    static void matrix(long end) {
        long[] n = counter();
        double[] a = new double[1024], b = new double[1024], c = new double[1024];
        Arrays.setAll(b, i -> i % 7 / 8.);
        Arrays.setAll(a, i -> i % 5 / 8.);
        while (System.nanoTime() < end) {
            n[MULTIPLY]++;
            multiply(n, a, b, c);
            sink += (long) c[17];
        }
    }

    interface Body {
        void run() throws Exception;
    }

    static Thread start(Body body) {
        Thread t = new Thread(() -> {
            try {
                body.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        t.setDaemon(true);
        t.start();
        return t;
    }

    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000_000L;
        for (String e : EDGES) {
            System.out.println("edge " + e);
        }
        start(() -> {
            while (true) {
                System.out.println(counts());
                Thread.sleep(20);
            }
        });
        switch (args[0]) {
            case "event-loop": eventLoop(end); break;
            case "pool": pool(end); break;
            case "requests": requests(end); break;
            case "batch": batch(end); break;
            case "tree": tree(end); break;
            case "interpreter": interpreter(end); break;
            case "schedule": schedule(end); break;
            case "phases": phases(end); break;
            case "matrix": {
                Thread other = start(() -> matrix(end));
                matrix(end);
                other.join();
                break;
            }
            default: throw new IllegalArgumentException(args[0]);
        }
    }
}
