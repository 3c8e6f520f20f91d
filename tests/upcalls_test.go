package tests

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// upcalls has qsort of the C library call Java for each comparison.
const upcalls = `
import java.lang.foreign.*;
import java.lang.invoke.*;
public class Upcalls {
    static volatile long sum;
    static int compare(MemorySegment a, MemorySegment b) {
        int p = a.get(ValueLayout.JAVA_INT, 0), q = b.get(ValueLayout.JAVA_INT, 0);
        for (int i = 0; i < 200; i++) sum += p ^ q;
        return Integer.compare(p, q);
    }
    static void sort(MethodHandle qsort, MemorySegment data, MemorySegment compare, int n) throws Throwable {
        for (int i = 0; i < n; i++) data.setAtIndex(ValueLayout.JAVA_INT, i, (i * 7919) % n);
        qsort.invokeExact(data, (long) n, 4L, compare);
    }
    static void work() {
        try {
            Linker linker = Linker.nativeLinker();
            var number = ValueLayout.ADDRESS.withTargetLayout(ValueLayout.JAVA_INT);
            var size = ValueLayout.JAVA_LONG;
            MethodHandle qsort = linker.downcallHandle(linker.defaultLookup().find("qsort").get(),
                FunctionDescriptor.ofVoid(ValueLayout.ADDRESS, size, size, ValueLayout.ADDRESS));
            MethodHandle target = MethodHandles.lookup().findStatic(Upcalls.class, "compare",
                MethodType.methodType(int.class, MemorySegment.class, MemorySegment.class));
            MemorySegment compare = linker.upcallStub(target, FunctionDescriptor.of(ValueLayout.JAVA_INT, number, number), Arena.global());
            MemorySegment data = Arena.global().allocate(4000);
            while (true) sort(qsort, data, compare, 1000);
        } catch (Throwable e) {
            throw new Error(e);
        }
    }
    public static void main(String[] args) throws Exception {
        Thread worker = new Thread(Upcalls::work);
        worker.setDaemon(true);
        worker.start();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        System.in.read();
    }
}`

// Stacks of Java code that native code has called by java.lang.foreign go on at the Java code that
// called the native code.
func TestUpcalls(t *testing.T) {
	needs.Root(t, "sampling")
	const minJDK = 22
	installed := needs.JDKs(t)
	jdk := installed[len(installed)-1]
	if jdk.Version < minJDK {
		needs.Missing(t, fmt.Sprintf("%v has no java.lang.foreign: install JDK %d or later", jdk, minJDK))
	}
	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: fstest.MapFS{"Upcalls.java": {Data: []byte(upcalls)}},
		Release: minJDK})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"-Xmixed", "-Xint"} {
		t.Run(mode, func(t *testing.T) {
			guest, err := jvm.Start(t.Context(), jvm.Command{
				JDK: jdk, Flags: []string{mode, "--enable-native-access=ALL-UNNAMED"}, Classpath: []string{classes},
				Main: "Upcalls",
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { guest.Close() })
			p := recordWork(t, guest.PID(), 1500*time.Millisecond)
			const stub = "[stub: upcall_stub]"
			up, right := int64(0), int64(0)
			for _, s := range notCutByTime(t, stacks.FromProfile(p)) {
				if !s.Has(stub) {
					continue
				}
				up += s.Count
				if s.Times(stub) == 1 && s.Times("Upcalls.sort") == 1 && s.Has("java.lang.Thread.run") &&
					s.Truncated() == "" {
					right += s.Count
				} else {
					t.Logf("%d times: %v", s.Count, s)
				}
			}
			const least = 0.99 // a few are sampled while a frame is built
			if up == 0 || float64(right) < least*float64(up) {
				t.Errorf("%d of %d stacks through the upcall are right", right, up)
			}
		})
	}
}
