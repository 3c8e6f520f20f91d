package guest;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/**
 * A server with a thread for each connection. A request is how much work it is, an int, and the answer is a checksum. It computes, allocates,
 * and takes a lock that all threads share. The first line of output has its process id and its port; it ends with its input.
 */
final class Served {
    private static final int KEPT = 256;
    private static final ArrayDeque<Map<String, Integer>> kept = new ArrayDeque<>();

    public static void main(String[] args) throws Exception {
        ServerSocket listener = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
        Thread accepting = new Thread(() -> accept(listener), "acceptor");
        accepting.setDaemon(true);
        accepting.start();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        while (true) {
            int order = System.in.read();
            if (order < 0) {
                return;
            }
            if (order == '\n') {
                System.out.println(listener.getLocalPort());
                System.out.println("done");
            }
        }
    }

    private static void accept(ServerSocket listener) {
        try {
            for (int i = 0;; i++) {
                Socket connection = listener.accept();
                connection.setTcpNoDelay(true);
                Thread handler = new Thread(() -> serve(connection), "handler-" + i);
                handler.setDaemon(true);
                handler.start();
            }
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void serve(Socket connection) {
        try (connection) {
            DataInputStream in = new DataInputStream(connection.getInputStream());
            DataOutputStream out = new DataOutputStream(connection.getOutputStream());
            while (true) {
                out.writeInt(handle(in.readInt()));
                out.flush();
            }
        } catch (IOException e) {
            return; // the client is gone
        }
    }

    static int handle(int work) {
        Map<String, Integer> words = new HashMap<>();
        int sum = 0;
        for (int i = 0; i < work; i++) {
            String word = "word" + (i * 31 & 127);
            words.merge(word, i, Integer::sum);
            sum = 31 * sum + word.hashCode();
        }
        synchronized (kept) {
            kept.add(words);
            if (kept.size() > KEPT) {
                kept.remove();
            }
        }
        return sum;
    }
}
