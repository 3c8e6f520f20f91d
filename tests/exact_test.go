package tests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// countedFlags make a JVM tell of all its calls.
var countedFlags = []string{"-XX:+" + exact.Flag, exact.NoC1Inlining}

// Every context in the profile has exactly the calls that the guest counted itself.
func TestExactContexts(t *testing.T) {
	needs.Root(t, "sampling")
	for _, jdk := range needs.JDKs(t) {
		t.Run(strconv.Itoa(jdk.Version), func(t *testing.T) {
			guest := startCounted(t, jdk, countedFlags...)
			p := recordExact(t, guest, "contexts")
			truth, err := guest.Truth()
			if err != nil {
				t.Fatal(err)
			}
			shown, wrong := truth.Diff(contextsOf(t, p, truth), 10)
			for _, difference := range shown {
				t.Error(difference)
			}
			if wrong > 0 || len(truth) == 0 {
				t.Errorf("%d of %d contexts are wrong; the profile says %q", wrong, len(truth), p.Comments)
			}
		})
	}
}

// The edges in the profile add up to the calls of each method.
func TestExactEdges(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startCounted(t, needs.JDK(t), countedFlags...)
	p := recordExact(t, guest, "edges")
	truth, err := guest.Truth()
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]int64{}, map[string]int64{}
	for path, n := range truth {
		words := strings.Fields(path)
		want[words[len(words)-1]] += int64(n)
	}
	for _, s := range p.Sample {
		got[functionOf(s.Location[0])] += s.Value[callsIndex(t, p)]
	}
	for method, n := range want {
		if got[method] != n {
			t.Errorf("%d calls of %s, want %d", got[method], method, n)
		}
	}
}

// A JVM that a command starts later is found although nothing is sampled. It ends with its standard
// input, after three seconds.
func TestExactCommand(t *testing.T) {
	needs.Root(t, "sampling")
	jdk, path := needs.JDK(t), output(t, "out.pb.gz")
	classes, err := guests.Compile(t.Context(), jdk)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"record", "-e", "calls", "--exact", "-o", path, "--", "sh", "-c", `sleep 3 | "$@"`, "sh",
		jdk.Java()}
	args = append(append(args, countedFlags...), "-cp", classes, guests.Main, "Plain")
	mustSucceed(t, args...)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	index, calls := callsIndex(t, p), int64(0)
	for _, s := range p.Sample {
		if functionOf(s.Location[0]) == heavy {
			calls += s.Value[index]
		}
	}
	if calls == 0 {
		t.Errorf("no call of %s; the profile says %q", heavy, p.Comments)
	}
}

// Objects are counted in each context that allocates them, by class, and calls are counted all the
// same.
func TestExactObjects(t *testing.T) {
	needs.Root(t, "sampling")
	const rounds = 1000
	const makes = "calls.Exact.makes"
	direct := makes + " calls.Exact.makesDirectly"
	around := makes + " calls.Exact.makesAround"
	deep := makes + strings.Repeat(" calls.Exact.makesDeep", 4)
	want := map[string][2]int64{ // by class and context: objects and bytes
		"item " + makes:   {rounds, 24 * rounds},
		"item " + direct:  {rounds, 24 * rounds},
		"array " + direct: {rounds, 56 * rounds},
		"item " + around:  {rounds, 24 * rounds},
		"item " + around + " calls.Exact.makesDirectly":               {rounds, 24 * rounds},
		"array " + around + " calls.Exact.makesDirectly":              {rounds, 56 * rounds},
		"item " + makes + " calls.Exact.makesAndThrows":               {rounds, 24 * rounds},
		"item " + makes + strings.Repeat(" calls.Exact.makesDeep", 1): {rounds, 24 * rounds},
		"item " + makes + strings.Repeat(" calls.Exact.makesDeep", 2): {rounds, 24 * rounds},
		"item " + makes + strings.Repeat(" calls.Exact.makesDeep", 3): {rounds, 24 * rounds},
		"item " + deep: {rounds, 24 * rounds},
	}
	for _, jdk := range needs.JDKs(t) {
		t.Run(strconv.Itoa(jdk.Version), func(t *testing.T) {
			guest := startCounted(t, jdk, append([]string{"-XX:+" + exact.ObjectFlag,
				"-XX:CompileThresholdScaling=0.1"}, countedFlags...)...)
			recording := recordExactly(t, guest, fmt.Sprintf("make %d", rounds), "-e", "calls,alloc", "--exact",
				"--exact-alloc")
			objects, calls := recording.Kinds["alloc"], recording.Kinds["calls"]
			if objects == nil || calls == nil {
				t.Fatalf("files of %d kinds:\n%s", len(recording.Kinds), recording.Output)
			}
			got := map[string][2]int64{}
			for _, s := range objects.Sample {
				class := map[string]string{"calls.Exact$Item": "item ",
					"int[]": "array "}[strings.Join(s.Label["class"], "")]
				if path := makesPath(s); class != "" && path != "" {
					n := got[class+path]
					got[class+path] = [2]int64{n[0] + s.Value[0], n[1] + s.Value[1]}
				}
			}
			for context, n := range want {
				if got[context] != n {
					t.Errorf("objects and bytes %v, want %v: %s", got[context], n, context)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d contexts of objects, want %d: %v", len(got), len(want), got)
			}
			if !strings.Contains(recording.Output, "B (exact), ") {
				t.Errorf("the sum of the objects is not said to be exact:\n%s", recording.Output)
			}
			index, around := callsIndex(t, calls), int64(0)
			for _, s := range calls.Sample {
				if functionOf(s.Location[0]) == "calls.Exact.makesAround" {
					around += s.Value[index]
				}
			}
			if around != rounds {
				t.Errorf("%d calls of makesAround, want %d", around, rounds)
			}
			if t.Failed() {
				t.Logf("the profile says %q", objects.Comments)
			}
		})
	}
}

// makesPath is the part of a stack from calls.Exact.makes on, outermost first; "" if it is
// elsewhere, as where classes are loaded.
func makesPath(s *profile.Sample) string {
	var path []string
	for _, location := range slices.Backward(s.Location) {
		name := functionOf(location)
		if len(path) > 0 && !strings.HasPrefix(name, "calls.Exact.makes") {
			return ""
		}
		if len(path) > 0 || name == "calls.Exact.makes" {
			path = append(path, name)
		}
	}
	return strings.Join(path, " ")
}

// A JVM that does not report its allocations is refused, with the remedy.
func TestExactObjectsFlag(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startCounted(t, needs.JDK(t), countedFlags...)
	got := agent(t, "record", "-e", "calls,alloc", "--exact", "--exact-alloc", "-p", strconv.Itoa(guest.PID()), "-d",
		"5s", "-o", output(t, "out"))
	if got.code == 0 || !strings.Contains(got.stderr, "-XX:+DTraceAllocProbes") {
		t.Errorf("ended with %d:\n%s", got.code, got.stderr)
	}
	sampled, err := built.While(t.Context(), profiler.Options{PID: guest.PID(), Frequency: frequency,
		Extra: []string{"-e", "alloc", "--exact-alloc"}},
		(*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error {
			_, err := guest.Order("make 100000")
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(sampled.Profile.Comments, "\n"); !strings.Contains(notes,
		"start it with -XX:+DTraceAllocProbes") {
		t.Errorf("samples without counts say only\n%s", notes)
	}
}

// A JVM that does not tell of its calls is refused, with what to do.
func TestExactFlag(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startCounted(t, needs.JDK(t))
	got := agent(t, "record", "-e", "calls", "--exact", "-p", strconv.Itoa(guest.PID()), "-d", "5s", "-o",
		output(t, "out.pb.gz"))
	if got.code == 0 || !strings.Contains(got.stderr, "-XX:+DTraceMethodProbes") {
		t.Errorf("ended with %d:\n%s", got.code, got.stderr)
	}
}

func startCounted(t *testing.T, jdk jvm.JDK, flags ...string) *guests.Counted {
	t.Helper()
	guest, err := guests.StartCounted(t.Context(), jdk, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() }) // ends with the test at the latest
	return guest
}

// recordExact records the guest while it makes its calls.
func recordExact(t *testing.T, guest *guests.Counted, what string) *profile.Profile {
	t.Helper()
	return recordExactly(t, guest, "run 2 30", "-e", "calls", "--exact="+what).Profile
}

// recordExactly records the guest while it obeys an order.
func recordExactly(t *testing.T, guest *guests.Counted, order string, flags ...string) *profiler.Recording {
	t.Helper()
	run, err := built.Start(t.Context(), profiler.Options{PID: guest.PID(), Frequency: frequency, Extra: flags})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guest's calls are counted, for the recording", func() bool {
		return run.Said(`msg="calls are counted"`) > 0 && run.Said("msg=recording") > 0
	})
	if _, err := guest.Order(order); err != nil {
		t.Fatal(err)
	}
	recording, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if n := recording.Stats.Attempted; n != 0 {
		t.Errorf("%d stacks were sampled, which nobody wanted", n)
	}
	return recording
}

// contextsOf returns the contexts of the guest's own threads in a profile, without methods of which
// the truth does not speak.
func contextsOf(t *testing.T, p *profile.Profile, truth guests.Contexts) guests.Contexts {
	t.Helper()
	index, known, contexts := callsIndex(t, p), truth.Methods(), guests.Contexts{}
	for _, s := range p.Sample {
		thread := strings.Join(s.Label["thread"], "")
		if !strings.HasPrefix(thread, "exact-") || !known[functionOf(s.Location[0])] {
			continue
		}
		path := thread
		for i := len(s.Location) - 1; i >= 0; i-- {
			if name := functionOf(s.Location[i]); known[name] {
				path += " " + name
			}
		}
		contexts[path] += uint64(s.Value[index])
	}
	return contexts
}

func functionOf(l *profile.Location) string {
	if len(l.Line) == 0 {
		return ""
	}
	return l.Line[0].Function.Name
}

func callsIndex(t *testing.T, p *profile.Profile) int {
	t.Helper()
	for i, sampleType := range p.SampleType {
		if sampleType.Type == "calls" {
			return i
		}
	}
	t.Fatalf("the profile has no calls but %v", p.SampleType)
	return 0
}
