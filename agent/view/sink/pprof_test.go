package sink_test

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestPprofGolden(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.Shop()))
	if want := time.Unix(1_700_000_000, 0).UnixNano(); stored.TimeNanos != want {
		t.Errorf("TimeNanos = %d, want %d", stored.TimeNanos, want)
	}
	sinktest.Golden(t, "shop.pprof.golden", sinktest.LocalTime.ReplaceAllString(stored.String(), "Time: (local)"))
}

func TestPprofHeader(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.Shop()))
	if got := stored.Mapping[0].File; got != sinktest.Java.File {
		t.Errorf("first mapping = %s, want the executable of the guest, %s", got, sinktest.Java.File)
	}
	if stored.DefaultSampleType != "cpu" || stored.PeriodType.Type != "cpu" || stored.PeriodType.Unit != "nanoseconds" {
		t.Errorf("default sample type %q, period type %+v", stored.DefaultSampleType, stored.PeriodType)
	}
	if stored.Period != 10_000_000 || stored.DurationNanos != 10_000_000_000 {
		t.Errorf("period %d ns, duration %d ns", stored.Period, stored.DurationNanos)
	}
	for _, m := range stored.Mapping {
		if want := m.File != sinktest.Libjvm.Value().File; m.HasFunctions != want { // where one function has no name
			t.Errorf("%s: HasFunctions is %v: pprof would symbolise it again, or not at all", m.File, m.HasFunctions)
		}
	}
	var samples, cpu int64
	for _, s := range stored.Sample {
		samples += s.Value[0]
		cpu += s.Value[1]
	}
	if samples != 141 || cpu != 141*10_000_000 {
		t.Errorf("%d samples, %d ns; want 141 samples of 10 ms", samples, cpu)
	}
}

// Equal things are one entry: a method at one line is one function and one location, whatever stack
// it is in.
func TestPprofTablesAreDeduplicated(t *testing.T) {
	stored := sinktest.MustPprof(t, sinktest.Shop())
	functions := make(map[string]bool)
	for _, f := range stored.Function {
		key := f.Name + "\x00" + f.SystemName + "\x00" + f.Filename
		if functions[key] {
			t.Errorf("function %s is there twice", f.Name)
		}
		functions[key] = true
	}
	locations := make(map[string]bool)
	for _, l := range stored.Location {
		key := fmt.Sprintf("%p %x %v", l.Mapping, l.Address, l.Line)
		if locations[key] {
			t.Errorf("location %d is there twice", l.ID)
		}
		locations[key] = true
	}
}

func TestPprofInlinedLines(t *testing.T) {
	stored := sinktest.MustPprof(t, sinktest.Shop())
	for _, s := range stored.Sample {
		if s.Location[0].Line[0].Function.Name != sinktest.GetNode.Function {
			continue
		}
		var names []string
		for _, l := range s.Location[0].Line {
			names = append(names, l.Function.Name)
		}
		if got, want := strings.Join(names, " "), strings.Join([]string{sinktest.GetNode.Function,
			sinktest.Get.Function, sinktest.Total.Function}, " "); got != want {
			t.Errorf("lines of the innermost location = %s, want %s", got, want)
		}
		if !s.Location[0].Mapping.HasInlineFrames {
			t.Errorf("the mapping does not say that it has inlined frames")
		}
		if got := s.Label["attribution"]; len(got) != 1 || got[0] != "approximate" {
			t.Errorf("attribution = %q", got)
		}
		return
	}
	t.Errorf("no sample in %s", sinktest.GetNode.Function)
}

func TestPprofTooLarge(t *testing.T) {
	p := sinktest.Shop()
	p.Processes[0].Threads[0].Tree = sinktest.ContextTree(sinktest.Sampled{Weight: math.MaxInt64 / 1000,
		Frames: []symbol.Frame{sinktest.Execute}})
	if stored, err := sink.Pprof(p, sink.ContentOf(p)); err == nil || stored != nil ||
		!strings.Contains(err.Error(), "process 77") {
		t.Errorf("Pprof = %v, %v, want an error about process 77", stored, err)
	}
}

func TestPprofEmpty(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, &profile.Profile{}))
	if len(stored.Sample) != 0 || stored.TimeNanos != 0 {
		t.Errorf("an empty window has %d samples at %d ns", len(stored.Sample), stored.TimeNanos)
	}
}

// What people run: the shares, names and inline marks must come out right, and nothing may be
// symbolised again.
func TestGoToolPprof(t *testing.T) {
	dir := t.TempDir()
	for name, p := range map[string]*profile.Profile{
		"shop": sinktest.Shop(), "calls": sinktest.ShopCalls(), "both": sinktest.ShopBoth(),
		"chained": sinktest.ShopChained(), "partial": sinktest.ShopPartial(),
	} {
		if err := sink.Write(filepath.Join(dir, name+".pb.gz"), nil, p, sink.ContentOf(p)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		file string
		args []string
		want []string // regular expressions
	}{
		{"shop", []string{"-top"}, []string{
			`(?m)^File: java$`, `(?m)^Type: cpu$`, `Duration: 10s, Total samples = 1410ms`,
		}},
		{"shop", []string{"-top", "-sample_index=samples"}, []string{
			`(?m)^Type: samples$`, `Total samples = 141`,
			`40 28\.37% .*  40 28\.37%  java\.util\.HashMap\.getNode \(inline\)`,
			` 0     0% .*  40 28\.37%  java\.util\.HashMap\.get \(inline\)`,
			`25 17\.73% .*  65 46\.10%  com\.acme\.Cart\.total\n`,
			`10  7\.09% .*  10  7\.09%  com\.acme\.Fib\.fib\n`, // recursion is counted once
			`30 21\.28% .*  30 21\.28%  execute_command\n`,
		}},
		{"shop", []string{"-top", "-sample_index=samples", "-tagfocus=runtime=hotspot"},
			[]string{`Showing nodes accounting for 110, 78\.01% of 141 total`}},
		{"shop", []string{"-top", "-sample_index=samples", "-tagfocus=pid=77:77"},
			[]string{`Showing nodes accounting for 31, 21\.99% of 141 total`}},
		{"shop", []string{"-tags"}, []string{`http-1`, `GC Thread#0`, `shop\.service`, `approximate`}},
		{"shop", []string{"-comments"}, []string{`samples: 141, 9 lost`,
			`java \(pid 1234\): runs without -XX:\+DebugNonSafepoints`}},
		{"shop", []string{"-traces", "-tagfocus=thread=GC"}, []string{`\[truncated: frame pointer\]`}},
		{"calls", []string{"-top"}, []string{
			`(?m)^Type: calls$`, `Total samples = 3602`, `1001 27\.79% .*  com\.acme\.Cart\.total\n`,
		}},
		{"calls", []string{"-peek=Cart.total"}, []string{ // who calls it, and whom it calls
			`1001 .* com\.acme\.Shop\.run\n`, `610 .* com\.acme\.Book\.price\n`, `500 .* java\.util\.HashMap\.get\n`,
		}},
		{"calls", []string{"-tags"}, []string{`estimated`, `inferred`, `page`, `stride`}},
		{"calls", []string{"-top", "-tagfocus=engine=page"},
			[]string{`Showing nodes accounting for 100, 2\.78% of 3602 total`}},
		{"both", []string{"-top"}, []string{`(?m)^Type: calls$`, `Total samples = 3502`}},
		{"both", []string{"-top", "-sample_index=cpu"}, []string{`Total samples = 1410ms`}},
		{"chained", []string{"-top", "-sample_index=samples", "-tagfocus=context=ambiguous"},
			[]string{`Showing nodes accounting for 120, 12\.00% of 1000 total`}},
		{"partial", []string{"-top"}, []string{`(?m)^Type: cpu$`, `Total samples = 1500ms`}},
		{"partial", []string{"-top", "-sample_index=entries"}, []string{`(?m)^Type: entries$`,
			`20 74\.07% .*  com\.acme\.Fib\.fib\n`}},
	} {
		t.Run(test.file+" "+strings.Join(test.args, " "), func(t *testing.T) {
			cmd := exec.Command("go", append(append([]string{"tool", "pprof"}, test.args...),
				filepath.Join(dir, test.file+".pb.gz"))...)
			cmd.Env = append(cmd.Environ(), "PPROF_TMPDIR="+t.TempDir())
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
			}
			for _, want := range test.want {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("no %s in\n%s", want, out)
				}
			}
			// pprof looks for names where some are missing, in libjvm.so of the shop, and nowhere
			// else.
			const missing = "symbolization failed for "
			tried := strings.Count(stderr.String(), missing)
			if want := strings.Count(stderr.String(), missing+"libjvm.so (build ID bb22)"); tried != want ||
				(tried == 1) != (test.file == "shop" || test.file == "both") {
				t.Errorf("pprof tried to symbolise: %s", &stderr)
			}
		})
	}
}
