package suite;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * H2 keeps a bank in memory, and two clients look up accounts, transfer money and ask for sums.
 *
 * <p>Each client moves money between accounts of its own only, so that the result does not depend on who comes first.
 */
final class H2 implements Program {
    static final int ACCOUNTS = 5000;
    static final int CLIENTS = 2;
    private static final int BRANCHES = 100;
    private static final long BALANCE = 1000;

    private Connection bank;

    static Connection connect() throws SQLException {
        return DriverManager.getConnection("jdbc:h2:mem:bank;DB_CLOSE_DELAY=-1;LOCK_TIMEOUT=10000", "sa", "");
    }

    @Override
    public void setUp() throws SQLException {
        bank = connect();
        try (Statement statement = bank.createStatement()) {
            statement.execute("create table account(id int primary key, branch int, balance bigint, name varchar(40))");
            statement.execute("create table history(client int, number int, debtor int, creditor int, amount int)");
            statement.execute("create index by_branch on account(branch)");
        }
        try (PreparedStatement open = bank.prepareStatement("insert into account values(?, ?, ?, ?)")) {
            for (int id = 0; id < ACCOUNTS; id++) {
                open.setInt(1, id);
                open.setInt(2, id % BRANCHES);
                open.setLong(3, BALANCE);
                open.setString(4, "n" + id * 7919 % ACCOUNTS); // a prime: names in another order than ids
                open.executeUpdate();
            }
        }
    }

    @Override
    public long iterate() throws Exception {
        Checksum checksum = new Checksum();
        ExecutorService clients = Executors.newFixedThreadPool(CLIENTS);
        try {
            List<Future<Long>> results = new ArrayList<>();
            for (int client = 0; client < CLIENTS; client++) {
                results.add(clients.submit(new H2Client(client)));
            }
            for (Future<Long> result : results) {
                checksum.add(result.get());
            }
        } finally {
            clients.shutdown();
        }
        try (Statement statement = bank.createStatement();
                ResultSet sum = statement.executeQuery("select sum(balance) from account")) {
            sum.next();
            checksum.add(sum.getLong(1));
        }
        try (Statement statement = bank.createStatement()) {
            statement.execute("delete from history");
        }
        return checksum.value();
    }
}
