package suite;

import java.util.Properties;
import org.python.core.PyInteger;
import org.python.core.PyObject;
import org.python.util.PythonInterpreter;

/** Jython runs trees, queens and dictionaries, written in Python. */
final class Jython implements Program {
    private static final int ITEMS = 20_000;
    private static final int BOARD = 7;
    private static final int SMALL_BOARD = 5;

    private final PyObject items = new PyInteger(Input.items(ITEMS));
    private final PyObject board = new PyInteger(Input.items(ITEMS) < ITEMS ? SMALL_BOARD : BOARD);
    private PyObject main;

    @Override
    public void setUp() {
        Properties settings = new Properties();
        settings.setProperty("python.import.site", "false");
        settings.setProperty("python.cachedir.skip", "true");
        PythonInterpreter.initialize(System.getProperties(), settings, new String[0]);
        PythonInterpreter interpreter = new PythonInterpreter();
        interpreter.execfile(Input.stream("bench.py"), "bench.py");
        main = interpreter.get("main");
    }

    @Override
    public long iterate() {
        Number result = (Number) main.__call__(items, board).__tojava__(Number.class);
        return result.longValue();
    }
}
