package tests

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/versions"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A loggedVersion is what a JVM's own log (-XX:+LogCompilation) says of a compilation.
type loggedVersion struct {
	id, level, osr, size int
	method               string
	made, givenUp        float64        // seconds since the JVM started; 0 if it was not given up
	traps                map[string]int // in its code, by reason
}

var (
	logElement   = regexp.MustCompile(`<(nmethod|make_not_entrant|uncommon_trap thread)[^>]*>`)
	logAttribute = regexp.MustCompile(`(\w+)='([^']*)'`)
)

// readCompilationLog reads the compilations of guest.Versions, by compile id.
func readCompilationLog(t *testing.T, path string) map[int]*loggedVersion {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[int]*loggedVersion{}
	for _, element := range logElement.FindAllString(string(text), -1) {
		a := map[string]string{}
		for _, m := range logAttribute.FindAllStringSubmatch(element, -1) {
			a[m[1]] = m[2]
		}
		number := func(key string) int {
			n, _ := strconv.Atoi(a[key])
			return n
		}
		stamp, _ := strconv.ParseFloat(a["stamp"], 64)
		id := number("compile_id")
		class, method, _ := strings.Cut(a["method"], " ")
		class = strings.ReplaceAll(class, "/", ".") // as JDK 8 has it
		method, _, _ = strings.Cut(method, " ")
		switch v := versions[id]; {
		case strings.HasPrefix(element, "<nmethod") && class == "guest.Versions":
			v = &loggedVersion{id: id, level: number("level"), osr: -1,
				size: number("oops_offset") - number("insts_offset"), method: method, made: stamp,
				traps: map[string]int{}}
			if a["compile_kind"] == "osr" {
				v.osr = 0
			}
			versions[id] = v
		case v == nil:
		case strings.HasPrefix(element, "<make_not_entrant"):
			v.givenUp = stamp
		case strings.HasPrefix(element, "<uncommon_trap"):
			v.traps[a["reason"]]++
		}
	}
	return versions
}

// The versions in a profile are those of the JVM's own log: the same ids, levels, kinds, sizes and
// order, given up when the log says so, and with the reasons that it has. The guest has a method
// that is compiled again when it meets other classes, one that is only ever entered in its loop,
// and one that C2 must not compile.
func TestVersionsKnown(t *testing.T) { versionsKnown(t, needs.JDKs(t)) }

// The same of JDKs that have no package here.
func TestVersionsKnownFetched(t *testing.T) { versionsKnown(t, needs.Fetched(t, "8", "21")) }

func versionsKnown(t *testing.T, jdks []jvm.JDK) {
	needs.Root(t, "sampling")
	classes, err := guests.CompileOld(t.Context(), needs.JDK(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, jdk := range jdks {
		t.Run(jdk.String(), func(t *testing.T) {
			dir := t.TempDir()
			directives, log, path := filepath.Join(dir, "directives"), filepath.Join(dir, "log.xml"),
				output(t, "versions.pb.gz")
			if err := os.WriteFile(directives, []byte(`[{match:"guest/Versions.plain", c2:{Exclude:true}}]`),
				0o644); err != nil {
				t.Fatal(err)
			}
			flags := []string{"-XX:+UnlockDiagnosticVMOptions", "-XX:+LogCompilation", "-XX:LogFile=" + log,
				"-XX:CompileCommand=quiet",
				"-XX:CompileCommand=dontinline,guest.Versions::sum",
				"-XX:CompileCommand=dontinline,guest.Versions::plain"}
			if jdk.Version >= 9 {
				flags = append(flags, "-XX:CompilerDirectivesFile="+directives)
			}
			java, err := jvm.Process(t.Context(), jvm.Command{
				JDK: jdk, Flags: flags, Classpath: []string{classes}, Main: "guest.Versions", Args: []string{"2", "5"},
				Dirs: []string{dir},
			})
			if err != nil {
				t.Fatal(err)
			}
			mustSucceed(t, append([]string{"record", "-F", strconv.Itoa(frequency), "-o", path, "--"}, java.Args...)...)
			p, err := input.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			vs, err := versions.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			logged := readCompilationLog(t, log)
			checkVersions(t, vs, logged, jdk.Version >= 9, jdk.Version >= 9)
			if t.Failed() {
				for _, m := range []string{"sum", "loop", "plain"} {
					var text strings.Builder
					versions.View("guest.Versions."+m)(&text, p, nil)
					t.Log(text.String())
				}
			}
		})
	}
}

// checkVersions compares with the log. Excluded says that C2 was kept from compiling plain. Unless
// the VM announces code, as the JDK 8 of this test does not, only those versions are known that
// were sampled, and when the recording began by the log's clock is not.
func checkVersions(t *testing.T, vs *versions.Versions, logged map[int]*loggedVersion, excluded, announced bool) {
	find := func(name string) *versions.Method {
		list, err := vs.Find("guest.Versions." + name)
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %d methods, %v", name, len(list), err)
		}
		return list[0]
	}
	start := math.NaN() // start of the recording, by the JVM's clock
	for _, v := range find("sum").Versions {
		if l := logged[int(v.ID)]; l != nil && !v.Seen && math.IsNaN(start) {
			start = l.made - v.Since.Seconds()
		}
	}
	if announced && math.IsNaN(start) {
		t.Fatal("no version of sum was announced")
	}
	// The log has stamps before a version is installed and its probe is hit; a busy machine may be
	// slow in between.
	const tolerance = 0.1
	for _, name := range []string{"sum", "loop", "plain"} {
		m, want := find(name), 0
		for _, l := range logged {
			if l.method == name {
				want++
			}
		}
		if announced && len(m.Versions) != want || len(m.Versions) == 0 {
			t.Errorf("%s has %d versions, the log %d", name, len(m.Versions), want)
		}
		last := 0.0
		for _, v := range m.Versions {
			l := logged[int(v.ID)]
			if l == nil || l.method != name {
				t.Errorf("%s %s: the log has %+v", name, v.Name(), l)
				continue
			}
			// A version without samples may be gone before it is read. Then only its announcement is known.
			unread := v.Level < 0 && v.Total == 0
			if !unread && (l.level != v.Level || (l.osr >= 0) != (v.OSR != nil) || l.size != int(v.Size)) {
				t.Errorf("%s %s of %d bytes: the log has %+v", name, v.Name(), v.Size, l)
			}
			if l.made < last-tolerance || !v.Seen && math.Abs(l.made-start-v.Since.Seconds()) > tolerance {
				t.Errorf("%s %s since %v: made %.3f s after the recording began", name, v.Name(), v.Since, l.made-start)
			}
			last = l.made
			if !v.Ended() || !announced {
				continue // the log goes on when the recording has ended
			}
			if l.givenUp == 0 || v.Until == nil || v.Until.Seconds() < l.givenUp-start-tolerance || v.InUse != nil &&
				v.InUse.Seconds() > l.givenUp-start+tolerance {
				t.Errorf("%s %s was given up at %s: by the log at %.3f s", name, v.Name(), v.Given(), l.givenUp-start)
			}
			for _, trap := range v.Traps {
				if !slices.ContainsFunc(slices.Collect(maps.Values(logged)),
					func(o *loggedVersion) bool { return o.method == name && o.traps[trap.Reason] > 0 }) {
					t.Errorf("%s %s: trap %+v is not in the log", name, v.Name(), trap)
				}
			}
		}
	}
	sum, loop, plain := find("sum"), find("loop"), find("plain")
	if seen, counted := sum.Deoptimized(); seen == 0 || counted < 2 {
		t.Errorf("sum was deoptimised %d times, %d by the VM's count", seen, counted)
	}
	deopt := slices.ContainsFunc(sum.Versions, func(v *versions.Code) bool {
		return v.Optimized() && v.Self > 50 && v.End() == "deopt: class_check" &&
			v.Traps[0].Method == "guest.Versions.sum"
	})
	// On a starved machine, where looks take long and so have to wait for their budget, the agent may
	// first look at a version when it has been given up already: its traps of before are not known.
	const unseen = 1.5 // s, of which one is between two looks
	late := slices.ContainsFunc(sum.Versions, func(v *versions.Code) bool {
		return v.Optimized() && v.Self > 50 && strings.HasPrefix(v.End(), "deopt, no trap known") &&
			v.InUse != nil && v.Until != nil && v.Until.Seconds()-v.InUse.Seconds() > unseen
	})
	if !deopt && !late || sum.Recompiled() == 0 {
		t.Errorf("sum: %s", sum.Timeline())
	}
	if v := busiest(loop); v.OSR == nil || !v.Optimized() || float64(v.Self) < 0.9*float64(loop.Self) ||
		loop.Self < 100 {
		t.Errorf("most samples of loop are of %s, %d of %d", v.Name(), v.Self, loop.Self)
	}
	if v := busiest(plain); plain.OnlyC1() != excluded || excluded && v.Level != 1 || v.Self < 30 {
		t.Errorf("most samples of plain are of %s, %d of %d", v.Name(), v.Self, plain.Self)
	}
	if since := busiest(plain).Since; since < 0 || since > 5*time.Second {
		t.Error(fmt.Sprint("plain since ", since))
	}
}

func busiest(m *versions.Method) *versions.Code {
	return slices.MaxFunc(m.Versions, func(a, b *versions.Code) int { return int(a.Self) - int(b.Self) })
}

// A version that is known to be slower per call is, with an interval: C2's code for three classes
// of receivers, after that for one. Without C1 the two follow each other.
func TestVersionsVerdictKnown(t *testing.T) {
	needs.Root(t, "sampling")
	breakpoints.Need(t) // they count the calls
	jdk := needs.JDK(t)
	classes, err := guests.CompileOld(t.Context(), jdk)
	if err != nil {
		t.Fatal(err)
	}
	path := output(t, "verdict.pb.gz")
	java, err := jvm.Process(t.Context(), jvm.Command{
		JDK: jdk, Classpath: []string{classes}, Main: "guest.Versions", Args: []string{"16", "34", "600000"},
		Flags: []string{"-XX:-TieredCompilation", "-XX:CompileCommand=quiet",
			"-XX:CompileCommand=dontinline,guest.Versions::sum"},
	})
	if err != nil {
		t.Fatal(err)
	}
	java.Stdin = nil
	if err := java.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = java.Wait() })
	mustSucceed(t, "record", "-p", strconv.Itoa(java.Process.Pid), "-F", strconv.Itoa(frequency), "--window=500ms",
		"--count=guest.Versions.sum", "--budget=10%", breakpoints.Flag, "-o", path, "-d", "60")
	got := mustSucceed(t, "report", "--view=versions", "guest.Versions.sum", path)
	t.Log(got.stdout)
	if !regexp.MustCompile(`#[0-9]+ against #[0-9]+: slower than its predecessor: CPU time per call \+[0-9.]+%`).MatchString(got.stdout) {
		t.Error("the version for three classes is not slower")
	}
}
