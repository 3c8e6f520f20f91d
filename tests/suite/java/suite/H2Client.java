package suite;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Random;
import java.util.concurrent.Callable;

/** A client of the bank that does a fixed list of transactions, and sums up what it read. */
final class H2Client implements Callable<Long> {
    private static final int TRANSACTIONS = 1500;
    private static final int LOOKUPS = 8;
    private static final int TRANSACTIONS_PER_REPORT = 100;
    private static final int ATTEMPTS = 50;

    private final int number;
    private final Random random;
    private final Checksum checksum = new Checksum();

    H2Client(int number) {
        this.number = number;
        random = new Random(number);
    }

    @Override
    public Long call() throws SQLException {
        try (Connection bank = H2.connect();
                PreparedStatement move = bank.prepareStatement("update account set balance = balance + ? where id = ?");
                PreparedStatement note = bank.prepareStatement("insert into history values(?, ?, ?, ?, ?)");
                PreparedStatement look = bank.prepareStatement("select name from account where id = ?");
                PreparedStatement report = bank.prepareStatement("select branch, count(*), min(name) from account"
                        + " where branch between ? and 60 group by branch order by branch")) {
            bank.setAutoCommit(false);
            for (int i = 0; i < TRANSACTIONS; i++) {
                lookUp(look);
                transfer(bank, move, note, i);
                if (i % TRANSACTIONS_PER_REPORT == 0) {
                    report(report);
                }
            }
        }
        return checksum.value();
    }

    private void lookUp(PreparedStatement look) throws SQLException {
        for (int i = 0; i < LOOKUPS; i++) {
            look.setInt(1, random.nextInt(H2.ACCOUNTS));
            try (ResultSet row = look.executeQuery()) {
                row.next();
                checksum.add(row.getString(1));
            }
        }
    }

    private void report(PreparedStatement report) throws SQLException {
        report.setInt(1, random.nextInt(40));
        try (ResultSet rows = report.executeQuery()) {
            while (rows.next()) {
                checksum.add(rows.getInt(2)).add(rows.getString(3));
            }
        }
    }

    /** The other client may hold a page that this one needs: the database then says so, and we try again. */
    private void transfer(Connection bank, PreparedStatement move, PreparedStatement note, int transaction)
            throws SQLException {
        int debtor = ownAccount();
        int creditor = ownAccount();
        int amount = random.nextInt(100);
        for (int attempt = 1; ; attempt++) {
            try {
                move(move, debtor, -amount);
                move(move, creditor, amount);
                note.setInt(1, number);
                note.setInt(2, transaction);
                note.setInt(3, debtor);
                note.setInt(4, creditor);
                note.setInt(5, amount);
                note.executeUpdate();
                bank.commit();
                return;
            } catch (SQLException e) {
                bank.rollback();
                if (attempt == ATTEMPTS) {
                    throw e;
                }
            }
        }
    }

    private static void move(PreparedStatement move, int account, long amount) throws SQLException {
        move.setLong(1, amount);
        move.setInt(2, account);
        move.executeUpdate();
    }

    private int ownAccount() {
        return random.nextInt(H2.ACCOUNTS / H2.CLIENTS) * H2.CLIENTS + number;
    }
}
