package tests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/counters"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// warmRounds have the JVM count the calls of all the guest's methods.
const warmRounds = 3000

// Every call of the guest's own methods is in the profile as often as the guest counted it itself,
// where one thread makes them: recursive ones, inlined ones, virtual ones, native methods, and such
// that exceptions end.
func TestExactCounters(t *testing.T) {
	needs.Root(t, "reading JVMs")
	for _, jdk := range needs.JDKs(t) {
		t.Run(strconv.Itoa(jdk.Version), func(t *testing.T) {
			want, got, p := recordCounters(t, jdk, 1, 300)
			for edge, n := range want {
				if got[edge] != n {
					t.Errorf("%d calls of %s, want %d", got[edge], edge, n)
				}
			}
			if t.Failed() || len(want) < 15 {
				t.Errorf("%d edges; the profile says %q", len(want), p.Comments)
			}
		})
	}
}

// Threads that count the same calls at the same time lose some of them, and count none that was not
// made.
func TestExactCountersThreads(t *testing.T) {
	needs.Root(t, "reading JVMs")
	want, got, p := recordCounters(t, needs.JDK(t), 4, 2000)
	var made, counted int64
	for edge, n := range want {
		made, counted = made+n, counted+got[edge]
		if got[edge] > n || got[edge] == 0 {
			t.Errorf("%d calls of %s, want %d", got[edge], edge, n)
		}
	}
	t.Logf("%d of %d calls are counted: %.2f %% are lost", counted, made, 100*(1-float64(counted)/float64(made)))
	if counted < made/2 {
		t.Errorf("%d of %d calls are counted; the profile says %q", counted, made, p.Comments)
	}
}

// recordCounters has threads of the guest make their calls while their counters are recorded, and
// returns what they called, by the names of caller and callee, in truth and in the profile.
func recordCounters(t *testing.T, jdk jvm.JDK, threads, rounds int) (want, got map[string]int64, _ *profile.Profile) {
	t.Helper()
	guest := startCounted(t, jdk, strings.Fields(counters.Flags)...)
	order := func(n int) guests.Contexts {
		t.Helper()
		if _, err := guest.Order(fmt.Sprintf("run %d %d", threads, n)); err != nil {
			t.Fatal(err)
		}
		truth, err := guest.Truth()
		if err != nil {
			t.Fatal(err)
		}
		return truth
	}
	before := order(warmRounds)
	run, err := built.Start(t.Context(), profiler.Options{PID: guest.PID(),
		Extra: []string{"-e", "calls", "--exact=counters"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitAttached(); err != nil {
		t.Fatal(err)
	}
	after := order(rounds)
	recording, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if n := recording.Stats.Attempted; n != 0 {
		t.Errorf("%d stacks were sampled, which nobody wanted", n)
	}
	got = map[string]int64{}
	index := callsIndex(t, recording.Profile)
	for _, s := range recording.Profile.Sample {
		if len(s.Location) == 2 {
			got[functionOf(s.Location[1])+" "+functionOf(s.Location[0])] += s.Value[index]
		}
	}
	return edgesSince(after, before), got, recording.Profile
}

// edgesSince are the calls between two truths that bytecode of the caller makes: what is called
// through the class library, by reflection or by the VM has another caller.
func edgesSince(after, before guests.Contexts) map[string]int64 {
	indirect := map[string]bool{
		"calls.Exact.reflected": true, "calls.Exact.element": true, "calls.Exact$Lazy.<clinit>": true,
		"calls.Exact.everything": true,
	}
	edges := map[string]int64{}
	for path, n := range after {
		words := strings.Fields(path)
		if callee := words[len(words)-1]; len(words) > 2 && !indirect[callee] && n > before[path] {
			edges[words[len(words)-2]+" "+callee] += int64(n - before[path])
		}
	}
	return edges
}

// What a JVM counted is kept when it ends before the recording does, up to the last reading.
func TestExactCountersEnd(t *testing.T) {
	needs.Root(t, "reading JVMs")
	guest := startCounted(t, needs.JDK(t), strings.Fields(counters.Flags)...)
	run, err := built.Start(t.Context(), profiler.Options{PID: guest.PID(),
		Extra: []string{"-e", "calls", "--exact=counters"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitAttached(); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Order("run 1 1000"); err != nil {
		t.Fatal(err)
	}
	const read = `msg="counters were read"`
	said := run.Said(read)
	// one may have been under way
	eventually(t, "the counters are read again", func() bool { return run.Said(read) > said+1 })
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	recording, err := run.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p, calls := recording.Profile, int64(0)
	for _, s := range p.Sample {
		if functionOf(s.Location[0]) == "calls.Exact.fib" {
			calls += s.Value[callsIndex(t, p)]
		}
	}
	if said := strings.Join(p.Comments, "\n"); calls == 0 || !strings.Contains(said, "could not be read at the end") {
		t.Errorf("%d calls; the profile says %s", calls, said)
	}
}

// A JVM whose code does not count its calls is refused, with what to do.
func TestExactCountersFlags(t *testing.T) {
	needs.Root(t, "reading JVMs")
	guest := startCounted(t, needs.JDK(t))
	got := agent(t, "record", "-e", "calls", "--exact=counters", "-p", strconv.Itoa(guest.PID()), "-d", "5s", "-o",
		output(t, "out.pb.gz"))
	if got.code == 0 || !strings.Contains(got.stderr, counters.Flags) ||
		!strings.Contains(got.stderr, "C2's code counts nothing") {
		t.Errorf("ended with %d:\n%s", got.code, got.stderr)
	}
}
