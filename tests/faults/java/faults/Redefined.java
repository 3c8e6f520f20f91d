package faults;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.instrument.ClassDefinition;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Runs Hot on a thread of its own, and redefines it over and over, as agents that instrument classes do. */
public final class Redefined {
    private static volatile Instrumentation instrumentation;
    private static volatile long sum;

    private Redefined() {}

    public static void premain(String options, Instrumentation given) {
        instrumentation = given;
    }

    /** The arguments are the pause between redefinitions, in milliseconds, and files with versions of Hot. */
    public static void main(String[] args) throws Exception {
        long pause = Long.parseLong(args[0]);
        String[] versions = Arrays.copyOfRange(args, 1, args.length);
        Thread worker = new Thread(Redefined::work, "worker");
        worker.setDaemon(true);
        worker.start();
        Thread redefiner = new Thread(() -> redefine(versions, pause), "redefiner");
        redefiner.setDaemon(true);
        redefiner.start();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        System.exit(0);
    }

    private static void work() {
        while (true) {
            sum += Hot.m00(sum);
        }
    }

    private static void redefine(String[] versions, long pause) {
        try {
            List<ClassDefinition> definitions = new ArrayList<>();
            for (String version : versions) {
                definitions.add(new ClassDefinition(Hot.class, Files.readAllBytes(Path.of(version))));
            }
            for (int i = 0; ; i++) {
                instrumentation.redefineClasses(definitions.get(i % definitions.size()));
                Thread.sleep(pause);
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }
}
