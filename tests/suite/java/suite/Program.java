package suite;

/** A real program with fixed input: each iteration does the same work. */
interface Program {
    /** Prepares the input, once. */
    default void setUp() throws Exception {}

    /** Does the work, and returns a checksum of its result. */
    long iterate() throws Exception;

    /** The program with the given simple class name. */
    static Program named(String name) throws ReflectiveOperationException {
        Class<?> type = Class.forName(Program.class.getPackageName() + "." + name);
        return (Program) type.getDeclaredConstructor().newInstance();
    }
}
