package faults

import (
	"archive/zip"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

//go:embed java
var javaSources embed.FS

var redefinedRows = []Row{
	{
		Fault: "an agent in a JVM redefines classes that run",
		Holds: "No frame has the name of another method, and at least 99.5 % of the stacks are whole. A method that " +
			"is " +
			"redefined before it could be named, within a fraction of a second, is `[stale]`.",
		Test: testRedefined,
	},
	{
		Fault:     "the memory of a method is used for another one, and no class is unloaded",
		Holds:     "Stacks stay whole. No sample of one method has the name of the other.",
		Kernels:   kernels,
		Elsewhere: []string{"bpf.TestKernelMethodRedefined", "vmruntime/hotspot.TestRedefinedMethod"},
	},
}

// hotMethods call each other in a row, so a stack with a wrong name is out of order.
const hotMethods = 20

// hotVersion is the source of class Hot. Versions differ in the order of their methods and in how
// long those are.
func hotVersion(version int) string {
	methods := make([]string, hotMethods)
	for i := range methods {
		next := "0"
		if i+1 < hotMethods {
			next = fmt.Sprintf("m%02d(n)", i+1)
		}
		padding := strings.Repeat("n ^= n >>> 3; ", (version*7+i)%4)
		methods[i] = fmt.Sprintf("static long m%02d(long n) { for (int i = 0; i < 30; i++) { n = n * 31 + %d; } "+
			"%sreturn n + %s; }\n",
			i, i, padding, next)
	}
	// Adjacent equal bodies swap places.
	methods = slices.Concat(methods[version*3%hotMethods:], methods[:version*3%hotMethods])
	if version%2 == 1 {
		slices.Reverse(methods)
	}
	return "package faults;\nfinal class Hot {\n" + strings.Join(methods, "") + "}\n"
}

// startRedefined starts a JVM in which an agent redefines a class that another thread runs.
func startRedefined(t *testing.T, jdk jvm.JDK, pause time.Duration, flags ...string) *jvm.Guest {
	t.Helper()
	source, err := fs.ReadFile(javaSources, "java/faults/Redefined.java")
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{fmt.Sprint(pause.Milliseconds())}
	classes := ""
	for version := range 4 {
		classes, err = jdk.Compile(t.Context(), jvm.Build{Release: jvm.MinVersion, Sources: fstest.MapFS{
			"faults/Redefined.java": {Data: source}, "faults/Hot.java": {Data: []byte(hotVersion(version))},
		}})
		if err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, filepath.Join(classes, "faults/Hot.class"))
	}
	jar := filepath.Join(t.TempDir(), "redefine.jar")
	f, err := os.Create(jar)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	manifest, err := z.Create("META-INF/MANIFEST.MF")
	if err == nil {
		_, err = fmt.Fprint(manifest, "Premain-Class: faults.Redefined\nCan-Redefine-Classes: true\n\n")
	}
	if err != nil || z.Close() != nil || f.Close() != nil {
		t.Fatalf("write %s: %v", jar, err)
	}
	guest, err := jvm.Start(t.Context(), jvm.Command{
		JDK: jdk, Flags: append(flags, "-javaagent:"+jar), Classpath: []string{classes}, Main: "faults.Redefined",
		Args: arguments,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	return guest
}

func testRedefined(t *testing.T) {
	jdks, err := jvm.Find(jvm.Root)
	if err != nil || len(jdks) == 0 {
		t.Fatalf("find JDKs: %v", err)
	}
	modes, pauses := []string{"-Xint", "-XX:+TieredCompilation"}, []time.Duration{20 * time.Millisecond, time.Second}
	if !*long {
		jdks, modes, pauses = jdks[len(jdks)-1:], modes[:1], pauses[:1]
	}
	for _, jdk := range jdks {
		for _, mode := range modes {
			for _, pause := range pauses {
				t.Run(fmt.Sprint(jdk, " ", mode, " ", pause), func(t *testing.T) {
					guest := startRedefined(t, jdk, pause, mode)
					const frequency = 499
					begin := time.Now()
					run, err := built.Start(t.Context(), profiler.Options{
						PID: guest.PID(), Frequency: frequency, Duration: time.Duration(times(5, 20)) * time.Second,
					})
					if err != nil {
						t.Fatal(err)
					}
					attachErr := run.WaitAttached()
					unattached := time.Since(begin) // time of one thread, whose samples wait for their names
					recording, err := run.Finish()
					if err := errors.Join(attachErr, err); err != nil {
						t.Fatal(err)
					}
					checkRedefined(t, recording.Profile, pause, int64(frequency*unattached.Seconds()))
				})
			}
		}
	}
}

// checkRedefined compares the stacks of the worker with its work. unattached samples were taken
// before the agent could name any.
func checkRedefined(t *testing.T, p *profile.Profile, pause time.Duration, early int64) {
	t.Helper()
	var all, whole, stale int64
	broken := map[string]int64{}
	for _, s := range p.Sample {
		n, stack := s.Value[0], functions(s)
		if !slices.ContainsFunc(stack, isWorkers) {
			continue // a sample of another thread
		}
		all += n
		fault := judgeHot(stack)
		switch {
		case fault == outOfOrder:
			t.Errorf("%d samples: out of order: %s", n, strings.Join(stack, " < "))
		case fault != "":
			broken[fault] += n
		default:
			whole += n
			if slices.ContainsFunc(stack, isNameless) {
				stale += n
			}
		}
	}
	t.Logf("%d samples, %.2f %% whole, %d of them with stale or unknown names; the others: %v",
		all, 100*float64(whole)/float64(all), stale, broken)
	const enough, least, mostStale = 300, 0.995, 0.05
	if all < enough || float64(whole) < least*float64(all) {
		t.Errorf("%d of %d stacks are whole, want %.1f %% of at least %d: %v", whole, all, 100*least, enough, broken)
	}
	if pause >= time.Second && float64(stale-early) > mostStale*float64(whole) {
		t.Errorf("%d of %d whole stacks have stale names, %d of them may; of the others want %.0f %% at most", stale,
			whole, early, 100*mostStale)
	}
}

// isWorkers reports whether a frame belongs to the worker only, or may.
func isWorkers(function string) bool {
	return strings.Contains(function, "faults.Hot.") || strings.Contains(function, "faults.Redefined.work") ||
		function == "[stale]" || strings.Contains(function, "interpreter frame unclear")
}

const outOfOrder = "out of order"

// judgeHot describes what is wrong with a stack of the worker, outermost frame first.
func judgeHot(stack []string) string {
	for _, f := range stack {
		if strings.HasPrefix(f, "[truncated") || strings.HasPrefix(f, "[not named") {
			return f
		}
	}
	at := slices.IndexFunc(stack, func(f string) bool { return strings.Contains(f, "faults.Redefined.work") })
	if at < 0 {
		return "no root"
	}
	last, nameless := -1, false
	for _, f := range stack[at+1:] {
		_, name, hot := strings.Cut(f, "faults.Hot.m")
		if !hot {
			nameless = nameless || isNameless(f) // stands for several methods where some are inlined into one
			continue
		}
		n, err := strconv.Atoi(name[:2])
		if err != nil || n <= last || n != last+1 && !nameless {
			return outOfOrder
		}
		last, nameless = n, false
	}
	return ""
}

func isNameless(function string) bool { return function == "[stale]" || function == "[unknown]" }

// functions are the names of a sample's frames, outermost first. A leaf [inlined in M] is left out:
// it is below M.
func functions(s *profile.Sample) (names []string) {
	for _, location := range slices.Backward(s.Location) {
		for _, line := range slices.Backward(location.Line) {
			if !stacks.InlinedIn(line.Function.Name) {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}
