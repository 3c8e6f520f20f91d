package calls;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;

/**
 * A node of the calling context tree that the program keeps of its own calls. Every method gets its caller's node as an
 * argument and enters its own, so that nothing must be undone when it returns or throws.
 */
final class Context {
    private final String method;
    private final List<Context> children = new ArrayList<>();
    private long calls;

    Context(String method) {
        this.method = method;
    }

    /** The node of a method that is called here; the call is counted. */
    Context enter(String callee) {
        for (Context child : children) {
            if (child.method.equals(callee)) {
                child.calls++;
                return child;
            }
        }
        Context child = new Context(callee);
        child.calls = 1;
        children.add(child);
        return child;
    }

    /** Prints a line for each context below: calls, then the methods from the outermost one on. */
    void print(PrintStream out, String path) {
        for (Context child : children) {
            String below = path + " " + child.method;
            out.println("calls " + child.calls + below);
            child.print(out, below);
        }
    }
}
