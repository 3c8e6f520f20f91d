package guest;

/** The template of the subclass that makes {@link Base000000}'s compiled code invalid when it is loaded. */
public final class Leaf000000 extends Base000000 {
    public Leaf000000() {}

    @Override
    long value() {
        return 2;
    }
}
