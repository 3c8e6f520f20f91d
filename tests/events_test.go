package tests

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// startEvents starts a program whose events are known, and ends it with the test.
func startEvents(t *testing.T, jdk jvm.JDK, program events.Program, flags ...string) *events.Guest {
	t.Helper()
	guest, err := events.Start(t.Context(), jdk, program, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	return guest
}

// recordEvents records kinds of events of a guest while it runs, all of that, and checks that
// nothing of it got lost without being counted.
func recordEvents(
	t *testing.T, guest *events.Guest, kinds string, threads, amount int, flags ...string,
) (*profile.Profile, events.Truth) {
	t.Helper()
	var truth events.Truth
	recording, err := built.While(t.Context(), profiler.Options{PID: guest.PID(), Frequency: frequency,
		Extra: append([]string{"-e", kinds}, flags...)},
		(*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error {
			var err error
			truth, err = guest.Run(threads, amount)
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	return recording.Profile, truth
}

func rowsOf(t *testing.T, p *profile.Profile, types ...string) []events.Row {
	t.Helper()
	rows, err := events.Read(p, types...)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// onEveryJDK runs a test on the oldest and on the newest JDK that there is.
func onEveryJDK(t *testing.T, test func(t *testing.T, jdk jvm.JDK)) {
	needs.Root(t, "sampling")
	for _, jdk := range needs.JDKs(t) {
		t.Run(strconv.Itoa(jdk.Version), func(t *testing.T) { test(t, jdk) })
	}
}

// Bytes by class and method are what chance allows of so many events: of n that are drawn in
// proportion to bytes, a share p has a standard error of sqrt(p(1-p)/n). Recording does not change
// what the guest does.
func TestRecordAllocations(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) {
		guest := startEvents(t, jdk, events.Allocating)
		const threads, amount = 2, 2_000_000
		plain, err := guest.Run(threads, amount)
		if err != nil {
			t.Fatal(err)
		}
		p, truth := recordEvents(t, guest, "alloc", threads, amount)
		if truth.Checksum != plain.Checksum {
			t.Errorf("checksum %s while it is recorded, %s otherwise", truth.Checksum, plain.Checksum)
		}
		rows := events.Own(rowsOf(t, p, "alloc_objects", "alloc_space"))
		const objects, bytes = 0, 1
		n := float64(events.Count(rows))
		var all float64
		for _, a := range truth.Allocations {
			all += float64(a.Bytes)
		}
		if n < 300 {
			t.Fatalf("%.0f events of %.3g bytes:\n%v", n, all, p.Comments)
		}
		t.Logf("%.0f events, %.4g of %.4g bytes", n, events.Sum(rows, bytes), all)
		defer func() {
			if t.Failed() {
				t.Log(strings.Join(p.Comments, "\n"))
			}
		}()
		// Events are of whole buffers: their number varies little.
		if off := events.Sum(rows, bytes)/all - 1; math.Abs(off) > 0.05+2/math.Sqrt(n) {
			t.Errorf("%.4g bytes, %.4g in truth", events.Sum(rows, bytes), all)
		}
		check := func(what string, rows []events.Row, of float64) {
			t.Helper()
			share, got := of/all, events.Sum(rows, bytes)/all
			// Four standard errors, a little for what is not drawn, such as the first objects after
			// collections.
			if allowed := 4*math.Sqrt(share*(1-share)/n) + 0.01; math.Abs(got-share) > allowed {
				t.Errorf("%s: %.2f%% of all bytes, %.2f%% in truth, allowed are %.2f", what, 100*got, 100*share,
					100*allowed)
			}
		}
		classes := events.Weights{}
		for _, a := range truth.Allocations {
			check(a.Method, events.InMethod(rows, a.Method), float64(a.Bytes))
			classes[a.Class] += float64(a.Bytes)
		}
		for class, of := range classes {
			check(class, events.Where(rows, func(r events.Row) bool { return r.Class == class }), of)
		}
		for _, a := range truth.Allocations {
			own := events.InMethod(rows, a.Method)
			if events.Count(own) < 30 {
				continue
			}
			size, got := float64(a.Bytes)/float64(a.Objects), events.Sum(own, bytes)/events.Sum(own, objects)
			if math.Abs(got/size-1) > 0.01 {
				t.Errorf("%s: objects of %.1f bytes, %.1f in truth", a.Method, got, size)
			}
			for _, row := range own {
				if row.Class != a.Class {
					t.Errorf("%s has allocated a %q", a.Method, row.Class)
				}
			}
		}
	})
}

// Windows of a recording of events add up to what the program did, and compare finds no difference
// between them.
func TestRecordWindowsOfEvents(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startEvents(t, needs.JDK(t), events.Allocating)
	const threads, amount = 2, 64_000_000
	if _, err := guest.Run(threads, amount/4); err != nil { // warms up
		t.Fatal(err)
	}
	// so that probes never rest
	p, truth := recordEvents(t, guest, "alloc", threads, amount, "--window=0.9", "--budget=20%")
	var all float64
	for _, a := range truth.Allocations {
		all += float64(a.Bytes)
	}
	rows := events.Own(rowsOf(t, p, "alloc_objects", "alloc_space"))
	n, sum := float64(events.Count(rows)), events.Sum(rows, 1)
	t.Logf("%.0f events, %.4g of %.4g bytes", n, sum, all)
	if off := sum/all - 1; n < 300 || math.Abs(off) > 0.02+2/math.Sqrt(n) {
		t.Errorf("%.4g bytes of %.0f events, %.4g in truth", sum, n, all)
	}
	of := make(map[int64]bool)
	for _, s := range p.Sample {
		of[s.NumLabel["window"][0]] = true
	}
	if len(of) < 2 {
		t.Errorf("windows %v have events", of)
	}
	path := filepath.Join(t.TempDir(), "alloc.pb.gz")
	var data bytes.Buffer
	if err := errors.Join(p.Write(&data), os.WriteFile(path, data.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := mustSucceed(t, "compare", "--per=1000", path, path); !strings.HasPrefix(got.stdout,
		"B allocates as much memory as A") && !strings.HasPrefix(got.stdout, "Undecided") {
		t.Error(got.stdout)
	}
}

// Waits are as long as the threads say that they were.
func TestRecordLocks(t *testing.T) {
	onEveryJDK(t, recordLocks)
}

// So are they in a JVM without symbols, whose threads are found by their ids: those of the program
// are new when it waits, and only waits are recorded.
func TestRecordLocksWithoutSymbols(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) { recordLocks(t, strippedJDK(t, jdk)) })
}

// strippedJDK is a copy of a JDK whose libjvm has no table of symbols. What need not be copied is
// linked.
func strippedJDK(t *testing.T, jdk jvm.JDK) jvm.JDK {
	t.Helper()
	home := t.TempDir()
	copied := func(path string) bool {
		return path == filepath.Join("bin", "java") || strings.HasSuffix(path, ".so")
	}
	err := filepath.WalkDir(jdk.Home, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(jdk.Home, path)
		if err != nil {
			return err
		}
		to := filepath.Join(home, name)
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case !copied(name):
			return os.Symlink(path, to)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Base(path) == "libjvm.so" {
			withoutSymbols(b)
		}
		return os.WriteFile(to, b, 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
	jdk.Home = home
	return jdk
}

// withoutSymbols has the headers of an ELF file not mention its table of symbols.
func withoutSymbols(file []byte) {
	headers, count := binary.LittleEndian.Uint64(file[0x28:]), binary.LittleEndian.Uint16(file[0x3c:])
	for i := range uint64(count) {
		kind := file[headers+64*i+4:]
		if binary.LittleEndian.Uint32(kind) == uint32(elf.SHT_SYMTAB) {
			binary.LittleEndian.PutUint32(kind, uint32(elf.SHT_NULL))
		}
	}
}

// recordLocks compares what is recorded of waits with what threads have measured themselves.
func recordLocks(t *testing.T, jdk jvm.JDK) {
	guest := startEvents(t, jdk, events.Waiting)
	const threads, amount = 3, 2000
	plain, err := guest.Run(threads, amount)
	if err != nil {
		t.Fatal(err)
	}
	p, truth := recordEvents(t, guest, "lock", threads, amount)
	if truth.Checksum != plain.Checksum {
		t.Errorf("checksum %s while it is recorded, %s otherwise", truth.Checksum, plain.Checksum)
	}
	rows := events.Own(rowsOf(t, p, "acquisitions", "contentions", "delay"))
	const contentions, delay = 1, 2
	// On a busy machine a record takes so long that the budget has room for one in several. Those
	// are drawn by lot, for all locks alike: a few events of one do not say how many of them there
	// were.
	every := 1.0
	ofWait := func(wait events.Waited) []events.Row {
		own := events.Where(events.InMethod(rows, wait.Method), func(r events.Row) bool { return r.Class == wait.Class })
		if len(own) == 0 { // java.util.concurrent's own methods are between
			own = events.Where(rows, func(r events.Row) bool { return r.Class == wait.Class && r.Has(wait.Method) })
		}
		return own
	}
	for _, wait := range truth.Waits {
		own := ofWait(wait)
		every = max(every, events.Sum(own, contentions)/max(float64(events.Count(own)), 1))
	}
	for _, wait := range truth.Waits {
		own := ofWait(wait)
		got := time.Duration(events.Sum(own, delay))
		t.Logf("%s %s: %d events, one in %.2f, %v; %d waits, %v in truth", wait.Method, wait.Class, events.Count(own),
			every, got, wait.LongTimes, wait.LongSum)
		// What the thread measures around the wait is longer by the way to the lock, and by being
		// kept from its CPU there: there are more threads than CPUs, and a time slice is 3 ms.
		allowed := wait.LongSum/20 + time.Duration(wait.LongTimes)*10*time.Microsecond + 4*3*time.Millisecond +
			4*wait.StandardError(every)
		if off := got - wait.LongSum; off > allowed || off < -allowed {
			t.Errorf("%s waited for a %s for %v, %v in truth, allowed are %v", wait.Method, wait.Class, got,
				wait.LongSum, allowed)
		}
	}
}

// The JVM's own log of safepoints has as many as are recorded, and as long ones. Samples that were
// taken meanwhile are marked.
func TestRecordSafepoints(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) {
		path := filepath.Join(t.TempDir(), "safepoints.log")
		guest := startEvents(t, jdk, events.Pausing, events.SafepointFlag(path), "-XX:+UseParallelGC")
		dir := output(t, "recording")
		run, err := built.Start(t.Context(), profiler.Options{
			PID: guest.PID(), Frequency: frequency, Extra: []string{"-e", "cpu,safepoint", "-o", dir},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.WaitAttached(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := guest.Run(2, 12); err != nil {
			t.Fatal(err)
		}
		ended := time.Now()
		if printed, err := run.Interrupt(); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		log, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		logged, err := events.ReadSafepoints(log)
		if err != nil {
			t.Fatal(err)
		}
		logged = events.Between(logged, began, ended.Add(time.Second))
		var truth time.Duration
		for _, s := range logged {
			truth += s.Total
		}
		p, err := profiler.ReadProfile(filepath.Join(dir, "safepoint.pb.gz"))
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(t, p, "pauses", "stopped")
		stopped := time.Duration(events.Sum(rows, 1))
		t.Logf("%.0f pauses, %v; %d, %v in the log", events.Sum(rows, 0), stopped, len(logged), truth)
		// There may be one more while the agent attaches or goes.
		if off := events.Sum(rows, 0) - float64(len(logged)); math.Abs(off) > 2 || len(logged) < 5 {
			t.Errorf("%.0f pauses, the JVM logged %d", events.Sum(rows, 0), len(logged))
		}
		var collections int
		for _, sample := range p.Sample {
			operation, collector := strings.Join(sample.Label["kind"], " "),
				strings.Join(sample.Label["collector"], " ")
			if strings.HasPrefix(operation, "Parallel") != strings.HasPrefix(collector, "PS ") {
				t.Errorf("%s: garbage was collected by %q", operation, collector)
			}
			if collector != "" {
				collections++
			}
		}
		if collections == 0 {
			t.Error("no garbage was collected in any pause")
		}
		allowed := truth/20 + time.Duration(len(logged))*50*time.Microsecond + 2*time.Millisecond
		if off := stopped - truth; off > allowed || off < -allowed {
			t.Errorf("stopped for %v, the JVM logged %v, allowed are %v", stopped, truth, allowed)
		}
		if p, err = profiler.ReadProfile(filepath.Join(dir, "cpu.pb.gz")); err != nil {
			t.Fatal(err)
		}
		var marked, own, all, collecting, unmarked float64
		for _, sample := range p.Sample {
			all += float64(sample.Value[0])
			stopped, collector := len(sample.Label["stopped"]) > 0,
				strings.HasPrefix(strings.Join(sample.Label["thread"], ""), "GC Thread#")
			if collector {
				collecting += float64(sample.Value[0])
			}
			if collector && !stopped {
				unmarked += float64(sample.Value[0])
			}
			if !stopped {
				continue
			}
			marked += float64(sample.Value[0])
			if frames := stacks.FramesOf(sample); len(frames) > 0 && strings.HasPrefix(frames[0].Function, "guest.") {
				own += float64(sample.Value[0])
			}
		}
		// The parallel collector's threads work in pauses only. What they do as one begins or ends
		// may be outside of it.
		t.Logf("%.0f samples of the collector, %.0f of them while Java threads run", collecting, unmarked)
		if collecting < 20 || unmarked > collecting/10 {
			t.Errorf("%.0f of %.0f samples of the collector's threads were taken while Java threads ran", unmarked,
				collecting)
		}
		// No more CPUs are used than there are.
		most := float64(runtime.NumCPU()) * stopped.Seconds() * frequency
		t.Logf("%.0f of %.0f samples while Java threads are stopped, at most %.0f; %.0f of these in Java", marked, all,
			most, own)
		if marked > 1.2*most+20 {
			t.Errorf("%.0f of %.0f samples were taken while Java threads were stopped, for %v", marked, all, stopped)
		}
		// They run on until they see that they are to stop.
		if own > marked/4+3 {
			t.Errorf("%.0f of %.0f samples that were taken while Java threads were stopped are of Java code", own,
				marked)
		}
	})
}

// kill -9 leaves no probe of any kind of event: the guest's libraries are as they were, and it goes
// on.
func TestKilledRecordingOfEventsLeavesNothing(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startEvents(t, needs.JDK(t), events.Allocating)
	plain, err := guest.Run(2, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	run, err := built.Start(t.Context(), profiler.Options{
		PID: guest.PID(), Frequency: frequency,
		Extra: []string{"-e", "cpu,alloc,lock,safepoint,page-faults,value", "--probe", "usdt:hotspot:gc__begin", "-o",
			output(t, "recording")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitAttached(); err != nil {
		t.Fatal(err)
	}
	if patched(t, guest.PID(), "libjvm.so") == 0 {
		t.Error("the agent put no probe into libjvm, so this test cannot see one that is left")
	}
	if err := run.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	run.Wait() // it was killed
	eventually(t, "libjvm's code is as its file has it", func() bool {
		return patched(t, guest.PID(),
			"libjvm.so") == 0
	})
	again, err := guest.Run(2, 100_000)
	if err != nil {
		t.Fatalf("the guest is hurt: %v", err)
	}
	if again.Checksum != plain.Checksum {
		t.Errorf("checksum %s after the agent was killed, %s before", again.Checksum, plain.Checksum)
	}
}
