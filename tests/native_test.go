package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// frameless has no frame pointers when it is compiled without them, nor has libc. It is called by
// libc (qsort, a signal) and calls it, and has frames whose size is only known as it runs.
const frameless = `
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#define N 4000
static int values[N];
static volatile unsigned sink;
#define APART __attribute__((noinline, noclone))
APART unsigned spin(unsigned n) {
	unsigned x = n;
	for (unsigned i = 0; i < 400; i++)
		x = x * 1664525u + 1013904223u;
	return sink = x;
}
APART int compare(const void *a, const void *b) {
	spin(3);
	return (*(int *)a > *(int *)b) - (*(int *)a < *(int *)b);
}
APART void sorts(void) {
	for (int i = 0; i < N; i++)
		values[i] = i * 7919 % N;
	qsort(values, N, sizeof(int), compare);
	sink++;
}
APART unsigned down(int depth) {
	char pad[64];
	memset(pad, depth, sizeof(pad));
	unsigned x = depth ? down(depth - 1) : spin(40);
	return x + pad[sink & 63];
}
APART unsigned variable(int n) {
	char *p = alloca(64 + (n & 15) * 16);
	memset(p, n, 64);
	return spin(n) + p[sink & 31];
}
APART void copies(void) {
	static char a[1 << 16], b[1 << 16];
	for (int i = 0; i < 300; i++) {
		memcpy(a, b, sizeof(a));
		sink += a[i];
	}
}
APART void allocates(void) {
	for (int i = 0; i < 3000; i++) {
		char *p = malloc(16 + i % 2000);
		*(volatile char *)p = 1;
		free(p);
	}
	sink++;
}
APART void prints(void) {
	char text[200];
	for (int i = 0; i < 1500; i++) {
		snprintf(text, sizeof(text), "%d %f %s", i, i / 3.0, "text");
		sink += text[0];
	}
}
static void handle(int s) {
	for (int i = 0; i < 300; i++)
		spin(s);
	sink++;
}
APART void work(void) {
	sorts();
	for (int i = 0; i < 300; i++)
		down(40);
	for (int i = 0; i < 3000; i++)
		variable(i);
	copies();
	allocates();
	prints();
	sink++;
}
int main(void) {
	struct itimerval often = {{0, 20000}, {0, 20000}};
	signal(SIGALRM, handle);
	setitimer(ITIMER_REAL, &often, 0);
	for (;;) {
		work();
		sink++;
	}
}`

// laterStacks records a process in windows and returns the stacks of all but the first one, in
// which unwind tables are made.
func laterStacks(t *testing.T, pid int, work time.Duration) []stacks.Stack {
	t.Helper()
	begun := cpuTime(t, pid)
	eventually(t, "the process has begun", func() bool { return cpuTime(t, pid)-begun > work/8 })
	recording, err := built.While(t.Context(), profiler.Options{PID: pid, Frequency: frequency,
		Extra: []string{"--window", "3"}}, (*profiler.AgentRun).WaitSampling, func(*profiler.AgentRun) error {
		began, before := time.Now(), cpuTime(t, pid)
		eventually(t, "the process works", func() bool {
			return cpuTime(t, pid)-before >= work && time.Since(began) > 8*time.Second
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := recording.Profile
	p.Sample = slices.DeleteFunc(p.Sample, func(s *profile.Sample) bool {
		n := s.NumLabel["window"]
		return len(n) != 1 || n[0] == 1
	})
	return notCutByTime(t, stacks.FromProfile(p))
}

// checkWhole checks that at least 99 of a hundred stacks have an outermost frame.
func checkWhole(t *testing.T, what string, all []stacks.Stack, atLeast int64) {
	t.Helper()
	cut := map[string]int64{}
	total := stacks.Count(all, func(stacks.Stack) bool { return true })
	whole := stacks.Count(all, func(s stacks.Stack) bool { return s.Truncated() == "" })
	for _, s := range all {
		if s.Truncated() != "" {
			cut[s.String()] += s.Count
		}
	}
	t.Logf("%s: %d of %d stacks are whole", what, whole, total)
	if total < atLeast || float64(whole) < 0.99*float64(total) {
		t.Errorf("%s: %d of %d stacks are whole; cut are %v", what, whole, total, cut)
	}
}

func TestRecordFrameless(t *testing.T) {
	needs.Root(t, "sampling")
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86-64 has unwind tables")
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "frameless.c"), filepath.Join(dir, "frameless")
	if err := os.WriteFile(source, []byte(frameless), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-fomit-frame-pointer", "-o", binary,
		source).CombinedOutput(); err != nil {
		needs.Missing(t, string(out)+err.Error())
	}
	guest := exec.CommandContext(t.Context(), binary)
	if err := guest.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = guest.Process.Kill()
		_ = guest.Wait()
	})
	all := laterStacks(t, guest.Process.Pid, 3*time.Second)
	checkWhole(t, "all", all, 500)
	for _, way := range [][]string{
		{"spin", "compare", "qsort*", "sorts", "work", "main"},
		{"spin", "down", "work", "main"},
		{"spin", "variable", "work", "main"},
		{"mem*", "copies", "work", "main"},
		{"printf*", "prints", "work", "main"},
		{"spin", "handle", "work", "main"}, // the signal came in work, or in what it called
	} {
		n := stacks.Count(all, func(s stacks.Stack) bool { return passes(s, way) })
		wrong := stacks.Count(all, func(s stacks.Stack) bool { return passes(s, way[:2]) && !passes(s, way) })
		t.Logf("%d by %v, %d not", n, way, wrong)
		if n == 0 || wrong*50 > n {
			t.Errorf("%d stacks by %v, %d begin so and have other callers", n, way, wrong)
		}
	}
	deep := stacks.Count(all, func(s stacks.Stack) bool { return s.Has("spin") && s.Times("down") == 41 })
	less := stacks.Count(all, func(s stacks.Stack) bool {
		return s.Frames[0].Function == "spin" && s.Has("down") && s.Times("down") != 41 && !s.Has("handle")
	})
	if gccInlined := deep == 0; !gccInlined && less*50 > deep {
		t.Errorf("%d stacks with all of the recursion, %d with a part of it", deep, less)
	}
}

// passes reports whether a stack has functions of these names in this order, innermost first, and
// maybe others between them. NAME* stands for names that contain NAME.
func passes(s stacks.Stack, names []string) bool {
	for _, f := range s.Frames {
		if len(names) == 0 {
			return true
		}
		name, part := strings.CutSuffix(names[0], "*")
		if f.Function == name || part && strings.Contains(f.Function, name) {
			names = names[1:]
		}
	}
	return len(names) == 0
}

// leaves calls functions of libc and of the JVM that leave no trace in the Java thread, and keeps
// the collector and the C2 compiler busy: classes are loaded again and again.
const leaves = `
import java.io.*;
import java.lang.reflect.*;
import java.util.zip.*;
public class Leaves {
    static volatile long sum;
    static byte[][] live = new byte[4000][];
    public static class Hot {
        public static long run(int n) {
            long s = 0;
            for (int i = 0; i < n; i++) for (int j = 0; j < 20; j++) { s += (i ^ j) % 7; if ((s & 3) == 1) s *= 3; else s -= j; }
            return s;
        }
    }
    static class Again extends ClassLoader {
        Class<?> load(byte[] code) { return defineClass("Leaves$Hot", code, 0, code.length); }
    }
    static long clock(int n) { long s = 0; for (int i = 0; i < n; i++) s += System.nanoTime(); return s; }
    static long deflate(byte[] in, byte[] out) {
        Deflater d = new Deflater();
        d.setInput(in);
        d.finish();
        long n = d.deflate(out);
        d.end();
        return n;
    }
    static void allocate(int n) { for (int i = 0; i < n; i++) live[i % live.length] = new byte[1000]; }
    static void compile(byte[] code) throws Exception {
        Method run = new Again().load(code).getMethod("run", int.class);
        for (int i = 0; i < 60; i++) sum += (Long) run.invoke(null, 5000);
    }
    public static void main(String[] args) throws Exception {
        byte[] in = new byte[100000], out = new byte[200000], code = new byte[1 << 16];
        for (int i = 0; i < in.length; i++) in[i] = (byte) (i * 31 >> 3);
        int n = 0;
        try (InputStream s = Leaves.class.getResourceAsStream("Leaves$Hot.class")) {
            for (int got; (got = s.read(code, n, code.length - n)) > 0; ) n += got;
        }
        byte[] hot = java.util.Arrays.copyOf(code, n);
        Thread worker = new Thread(() -> {
            try {
                while (true) { sum += clock(5000) + deflate(in, out); allocate(4000); compile(hot); }
            } catch (Exception e) { throw new RuntimeException(e); }
        });
        worker.setDaemon(true);
        worker.start();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        System.in.read();
    }
}`

func TestRecordNativeOfJava(t *testing.T) {
	needs.Root(t, "sampling")
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86-64 has unwind tables")
	}
	classes, err := needs.JDK(t).Compile(t.Context(), jvm.Build{
		Sources: fstest.MapFS{"Leaves.java": {Data: []byte(leaves)}}, Release: jvm.MinVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	guest, err := jvm.Start(t.Context(), jvm.Command{JDK: needs.JDK(t), Classpath: []string{classes}, Main: "Leaves",
		Flags: []string{"-XX:+UseParallelGC", "-Xmx64m", "-XX:-TieredCompilation", "-XX:CompileThreshold=500"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	all := laterStacks(t, guest.PID(), 4*time.Second)
	checkWhole(t, "all", all, 500)
	checkWhole(t, "collector", stacks.OnThread(all, "GC Thread"), 20)
	checkWhole(t, "C2", stacks.OnThread(all, "C2 CompilerThre"), 20)
	worker := stacks.OnThread(all, "Thread-") // the JVM's own threads ask for the time as well
	for _, leaf := range []string{"clock_gettime", "deflate"} {
		of := func(s stacks.Stack) bool {
			return s.Frames[0].Function == leaf || s.Frames[0].Mapping != "" && s.Has(leaf)
		}
		n := stacks.Count(worker, func(s stacks.Stack) bool { return of(s) && s.Has("java.lang.Thread.run") })
		without := stacks.Count(worker, func(s stacks.Stack) bool { return of(s) && !s.Has("java.lang.Thread.run") })
		t.Logf("%s: %d with their Java callers, %d without", leaf, n, without)
		if n < 5 || without*50 > n {
			t.Errorf("%s: %d stacks with their Java callers, %d without", leaf, n, without)
		}
	}
}
