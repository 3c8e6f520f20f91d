package guest;

/** A class loader for the copies of templates that have one number. They are unloaded together with it. */
final class Copies extends ClassLoader {
    private final int number;

    Copies(int number) {
        super(Copies.class.getClassLoader());
        this.number = number;
    }

    /** Loads the template's copy and makes one object of it. */
    Object make(Template template) throws ReflectiveOperationException {
        byte[] file = template.classFile(number);
        Class<?> copy = defineClass(template.name(number), file, 0, file.length);
        return copy.getDeclaredConstructor().newInstance();
    }
}
