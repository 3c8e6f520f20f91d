package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// startingRows are about JVMs that are not ready yet when the agent looks at them.
var startingRows = []Row{
	{
		Fault:     "300 JVMs run when `doctor` looks",
		Holds:     "They are looked at in parallel, their library is read once, and those that are alike share a line.",
		Elsewhere: []string{"agent/doctor.TestManyJVMs"},
	},
	{
		Fault: "a JVM is sampled while it is loaded",
		Holds: "The agent attaches to the JVM. Five seconds after the JVM's start, its hot method and the callers " +
			"have names. The agent retries every failed " +
			"attach: by itself for half a minute, then when the process is sampled, at most once a minute. It looks " +
			"up stale compiled code again.",
		Test: startingJVMs,
		Elsewhere: []string{"vmruntime/hotspot.TestAttachLoading", "agent/guest.TestAttachAgain",
			"agent/guest.TestLookAgain", "agent.TestSampleRetries", "agent/guest.TestStaleAgain"},
	},
	{
		Fault: "the process id of a JVM that has ended is used again at once, for another JVM",
		Holds: "Samples of the new JVM have its own names, and none has a name of the JVM that had the id before.",
		Test:  reusedPID,
	},
}

// programs are the JVMs' programs: each burns one CPU until it is killed.
var programs = fstest.MapFS{
	"Busy.java": {Data: []byte(`
		public class Busy {
			static volatile long sink;
			public static void main(String[] args) {
				System.out.println("ready pid " + ProcessHandle.current().pid());
				for (;;) spin();
			}
			static void spin() {
				long x = 1;
				for (int i = 0; i < 1 << 20; i++) { x ^= x << 13; x ^= x >>> 7; x ^= x << 17; }
				sink = x;
			}
		}`)},
	"Churn.java": {Data: []byte(`
		/** Fills its heap with objects that live for a while. */
		public class Churn {
			public static void main(String[] args) {
				System.out.println("ready pid " + ProcessHandle.current().pid());
				Object[] kept = new Object[1 << 16];
				for (int i = 0; ; i++) {
					kept[i & kept.length - 1] = new byte[2048];
					synchronized (kept) { Busy.sink++; }
				}
			}
		}`)},
	"Calm.java": {Data: []byte(`
		/** Allocates some 20 MB a second. */
		public class Calm {
			static Object kept;
			public static void main(String[] args) throws Exception {
				System.out.println("ready pid " + ProcessHandle.current().pid());
				for (;;) {
					for (int i = 0; i < 50; i++) kept = new byte[2048];
					Thread.sleep(5);
				}
			}
		}`)},
	"NoClass.java": {Data: []byte(`
		/** Overwrites the class in the header of its threads' objects. */
		public class NoClass {
			public static void main(String[] args) throws Exception {
				java.lang.reflect.Field f = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
				f.setAccessible(true);
				sun.misc.Unsafe unsafe = (sun.misc.Unsafe) f.get(null);
				Thread[] all = new Thread[64];
				int n = Thread.enumerate(all);
				System.out.println("ready pid " + ProcessHandle.current().pid());
				for (int i = 0; i < n; i++) unsafe.putLong(all[i], 8L, 0L);
				for (;;) Busy.spin();
			}
		}`)},
}

// startJVM starts one of the programs, which is killed when the test ends.
func startJVM(t *testing.T, jdk jvm.JDK, main string, flags ...string) *jvm.Guest {
	t.Helper()
	g, err := launch(t.Context(), jdk, main, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(g) })
	return g
}

func launch(ctx context.Context, jdk jvm.JDK, main string, flags ...string) (*jvm.Guest, error) {
	compiler, err := jvm.Oldest()
	if err != nil {
		return nil, err
	}
	classes, err := compiler.Compile(ctx, jvm.Build{Sources: programs, Release: jvm.MinVersion})
	if err != nil {
		return nil, err
	}
	return jvm.Start(ctx, jvm.Command{
		JDK: jdk, Flags: append([]string{"-Xmx64m"}, flags...), Classpath: []string{classes}, Main: main,
	})
}

func stop(g *jvm.Guest) {
	g.Kill()
	g.Close()
}

// named returns the share of a process's samples of the next second that have frames of all these
// names.
func named(t *testing.T, url string, pids []int, functions ...string) map[int]float64 {
	t.Helper()
	all, found := map[int]float64{}, map[int]float64{}
	for _, sample := range nextSecond(t, url, pids).Sample {
		pid := int(sample.NumLabel["pid"][0])
		all[pid] += float64(sample.Value[0])
		if !slices.ContainsFunc(functions, func(f string) bool { return !has(sample, f) }) {
			found[pid] += float64(sample.Value[0])
		}
	}
	shares := map[int]float64{}
	for _, pid := range pids {
		shares[pid] = found[pid] / max(all[pid], 1)
	}
	return shares
}

// nextSecond is the profile of these processes.
func nextSecond(t *testing.T, url string, pids []int) *profile.Profile {
	t.Helper()
	query := "seconds=1"
	for _, pid := range pids {
		query += fmt.Sprintf("&pid=%d", pid)
	}
	return download(t, url+"/profiles/cpu?"+query)
}

// stacksOf lists the stacks of a profile, the innermost frame first, with their samples.
func stacksOf(p *profile.Profile) string {
	var lines strings.Builder
	for _, s := range p.Sample {
		fmt.Fprintf(&lines, "%6d", s.Value[0])
		for _, location := range s.Location {
			for _, line := range location.Line {
				lines.WriteString(" " + line.Function.Name)
			}
		}
		lines.WriteByte('\n')
	}
	return lines.String()
}

func has(s *profile.Sample, function string) bool {
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function != nil && strings.HasSuffix(line.Function.Name, function) {
				return true
			}
		}
	}
	return false
}

// reusedPID gives the id of a JVM that has ended to another one.
func reusedPID(t *testing.T) {
	needs.Root(t, "profiling the machine")
	jdk := needs.JDK(t)
	url, _ := serve(t, "-F", "999")
	first, err := launch(t.Context(), jdk, "Busy")
	if err != nil {
		t.Fatal(err)
	}
	pid := first.PID()
	wait.For(t, time.Minute, "the first JVM has names", func() bool {
		return named(t, url, []int{pid},
			"Busy.main")[pid] > 0.5
	})
	stop(first)
	wait.For(t, time.Minute, "the id is used again", func() bool {
		// The next process has the id after this one, unless another program starts a process
		// first.
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0); err != nil {
			needs.Missing(t, err)
		}
		second, err := launch(t.Context(), jdk, "Churn", "-Xmx256m")
		if err != nil {
			t.Fatal(err)
		}
		if second.PID() != pid {
			stop(second)
			return false
		}
		t.Cleanup(func() { stop(second) })
		return true
	})
	// The first profile may have samples that were taken of the first JVM and read afterwards.
	var p *profile.Profile
	own := func(s *profile.Sample) bool { return has(s, "Churn.main") } // the collector may have most samples
	wait.For(t, time.Minute, "the second JVM has names", func() bool {
		before := p
		p = nextSecond(t, url, []int{pid})
		return before != nil && slices.ContainsFunc(p.Sample, own)
	})
	if slices.ContainsFunc(p.Sample, func(s *profile.Sample) bool {
		return has(s, "Busy.main") ||
			has(s, "Busy.spin")
	}) {
		t.Errorf("names of the first JVM:\n%s", stacksOf(p))
	}
}

// startingJVMs starts JVMs of every JDK in waves, next to an agent that samples at its maximum
// rate.
func startingJVMs(t *testing.T) {
	needs.Root(t, "profiling the machine")
	jdks := needs.JDKs(t)
	url, _ := serve(t, "-F", "999")
	const wave, limit = 10, 5 * time.Second
	started, late := 0, 0
	for range times(2, 30) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var pids []int
		var guests []*jvm.Guest
		var failed error
		for i := range wave {
			wg.Go(func() {
				g, err := launch(t.Context(), jdks[i%len(jdks)], "Busy")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = errors.Join(failed, err)
					return
				}
				guests, pids = append(guests, g), append(pids, g.PID())
			})
		}
		wg.Wait()
		ready := time.Now()
		if failed != nil {
			t.Fatal(failed)
		}
		started += len(pids)
		// The limit is part of the fault; a longer wait means that the machine is too busy to
		// answer.
		unnamed := func() (left []int) {
			for pid, share := range named(t, url, pids, "Busy.main", "Busy.spin") {
				if share < 0.5 {
					left = append(left, pid)
				}
			}
			return left
		}
		left := unnamed()
		for len(left) > 0 && time.Since(ready) < limit {
			left = unnamed()
		}
		late += len(left)
		for deadline := time.Now().Add(time.Minute); len(left) > 0; left = unnamed() {
			if time.Now().After(deadline) {
				t.Fatalf("JVMs %v have no names:\n%s", left, stacksOf(nextSecond(t, url, left)))
			}
		}
		for _, g := range guests {
			stop(g)
		}
	}
	t.Logf("%d JVMs started; %d had no Java frames after %v", started, late, limit)
	if late > 0 && *long {
		t.Errorf("%d of %d JVMs had no Java frames after %v", late, started, limit)
	}
}
