package guest;

/** A program whose profile is known, because it measures itself while it runs. */
interface Program {
    /** Starts the program's workers, which report to the ledger, and returns. */
    void start(Ledger ledger) throws Exception;

    /** The program with the given simple class name. */
    static Program named(String name) throws ReflectiveOperationException {
        Class<?> type = Class.forName(Program.class.getPackageName() + "." + name);
        return (Program) type.getDeclaredConstructor().newInstance();
    }
}
