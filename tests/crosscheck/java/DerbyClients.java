import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Clients of an embedded database move money between few accounts, so that they wait for each other. */
final class DerbyClients {
    private static final int ACCOUNTS = 40;

    public static void main(String[] args) throws Exception {
        System.setProperty("derby.stream.error.file", args[0] + ".log");
        String url = "jdbc:derby:memory:" + args[0].replace('/', '_');
        int clients = Integer.parseInt(args[1]);
        int transfers = Integer.parseInt(args[2]);
        try (Connection db = DriverManager.getConnection(url + ";create=true")) {
            db.createStatement().execute("create table account (id int primary key, money bigint)");
            for (int i = 0; i < ACCOUNTS; i++) {
                db.createStatement().execute("insert into account values (" + i + ", 1000)");
            }
        }
        List<Thread> threads = new ArrayList<>();
        for (int c = 0; c < clients; c++) {
            int client = c;
            threads.add(new Thread(() -> transfer(url, client, transfers / clients), "client-" + c));
        }
        for (Thread t : threads) {
            t.start();
        }
        for (Thread t : threads) {
            t.join();
        }
        try (Connection db = DriverManager.getConnection(url)) {
            var sum = db.createStatement().executeQuery("select sum(money) from account");
            sum.next();
            System.out.println(sum.getLong(1));
        }
    }

    private static void transfer(String url, int client, int transfers) {
        Random random = new Random(client);
        try (Connection db = DriverManager.getConnection(url)) {
            db.setAutoCommit(false);
            PreparedStatement move = db.prepareStatement("update account set money = money + ? where id = ?");
            for (int i = 0; i < transfers; i++) {
                int from = random.nextInt(ACCOUNTS - 1);
                int to = from + 1 + random.nextInt(ACCOUNTS - from - 1); // always upward: no deadlock
                move.setInt(1, -1);
                move.setInt(2, from);
                move.executeUpdate();
                move.setInt(1, 1);
                move.setInt(2, to);
                move.executeUpdate();
                db.commit();
            }
        } catch (SQLException e) {
            throw new IllegalStateException(e);
        }
    }
}
