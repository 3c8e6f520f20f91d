package recordings

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
)

// costModel writes a model in which a sample costs 2 and an allocated byte 0.000001: 20 of
// storedProfile, 6 of storedEvents.
func costModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte("{name: m, unit: EUR, prices: [{of: samples, price: 2}, {of: alloc_space, "+
		"price: 1, per: MB}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReportCost(t *testing.T) {
	time, allocations, model := storedProfile(t), storedEvents(t, profile.Allocations), costModel(t)
	both := copies(t, time, allocations)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{time}, []string{"90.0% 18 EUR", "com.acme.Main.hot", "cost model m ", "samples 2 EUR",
			"costs not included, as they were not recorded: alloc_space"}},
		{[]string{"--view=tree", time}, []string{"or more of 20 EUR m", "com.acme.Main.hot s:18 EUR(90.0%)"}},
		{[]string{"--view=threads", time}, []string{"20 EUR"}},
		{[]string{time, allocations}, []string{"24 EUR", "92.3%", "cpu.pb.gz: samples: 10, 2 lost",
			"alloc.pb.gz: events: 30 alloc, 2 lost"}},
		{[]string{both}, []string{"24 EUR"}},
		{[]string{"--view=tree", both}, []string{"or more of 26 EUR m"}},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"--cost=" + model}, tt.args...)
		if err := Report(t.Context(), args, &stdout, &stderr); err != nil {
			t.Errorf("report %q: %v", args, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("report %q has no %q:\n%s", args, want, &stdout)
			}
		}
	}
}

// Costs are files like others: of pprof, and pages.
func TestReportCostOutput(t *testing.T) {
	in, model := storedProfile(t), costModel(t)
	for _, name := range []string{"cost.pb.gz", "cost.html", "cost.json"} {
		out := filepath.Join(t.TempDir(), name)
		var stdout, stderr bytes.Buffer
		if err := Report(t.Context(), []string{"--cost", model, "-o", out, in}, &stdout, &stderr); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasSuffix(name, ".pb.gz") {
			text, err := os.ReadFile(out)
			if err != nil || !bytes.Contains(text, []byte("com.acme.Main.hot")) {
				t.Errorf("%s: %v, %d bytes", name, err, len(text))
			}
			continue
		}
		p, err := input.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		cost, ok := stored.CostOf(p.SampleType[0])
		if sum := p.Sample[0].Value[0] + p.Sample[1].Value[0]; !ok || len(p.Sample) != 2 || cost.Name != "m" ||
			cost.Unit != "EUR" || sum != 20e9 {
			t.Errorf("%+v: %+v with %d", p.SampleType[0], cost, sum)
		}
		stdout.Reset()
		if err := Report(t.Context(), []string{out}, &stdout, &stderr); err != nil ||
			!strings.Contains(stdout.String(), "18 EUR") {
			t.Errorf("read back: %v\n%s", err, &stdout)
		}
	}
}

func TestReportCostErrors(t *testing.T) {
	in, model := storedProfile(t), costModel(t)
	misspelt := filepath.Join(t.TempDir(), "misspelt.yaml")
	if err := os.WriteFile(misspelt, []byte("{name: m, unit: EUR, pirces: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--cost", misspelt, in}, "did you mean prices?"},
		{[]string{"--cost", filepath.Join(t.TempDir(), "no.yaml"), in}, "no such file"},
		{[]string{"--cost", model, "--view=allocs", in}, "--cost is for --view=methods, threads or tree"},
		{[]string{"--cost", model}, "name one file"},
		{[]string{"--cost", model, storedEvents(t, profile.Locks)}, "has prices of samples, alloc_space"},
		{[]string{"-o", "x.pb.gz", in}, "with --cost .pb.gz"},
		{[]string{"--where=true", "--view=timeline", in}, "--where is for views of samples"},
	} {
		var stdout, stderr bytes.Buffer
		if err := Report(t.Context(), tt.args, &stdout, &stderr); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("report %q = %v, want an error with %q", tt.args, err, tt.want)
		}
	}
}

func TestReportWhere(t *testing.T) {
	time, allocations := storedProfile(t), storedEvents(t, profile.Allocations)
	for _, tt := range []struct {
		args         []string
		want, absent string
	}{
		{[]string{`--where=method.endsWith("cold")`, time}, "100.0%       1  100.0%       1  com.acme.Main.cold",
			"Main.hot"},
		{[]string{`--where=stack.anyMatches("Main.hot$")`, time}, "100.0%       9", "Main.cold"},
		{[]string{`--where=class == "byte[]"`, allocations}, "byte[]", ""},
		{[]string{`--where=class == "char[]"`, allocations}, "Allocations", "byte[]  com"},
		{[]string{`--where=method.endsWith("cold")`, "--cost=" + costModel(t), time}, "100.0% 2 EUR", "Main.hot"},
	} {
		var stdout, stderr bytes.Buffer
		if err := Report(t.Context(), tt.args, &stdout, &stderr); err != nil {
			t.Errorf("report %q: %v", tt.args, err)
			continue
		}
		text := strings.Join(strings.Fields(stdout.String()), " ")
		if want := strings.Join(strings.Fields(tt.want), " "); !strings.Contains(text, want) || tt.absent != "" &&
			strings.Contains(text, tt.absent) ||
			!strings.Contains(text, "samples where") {
			t.Errorf("report %q has no %q, or has %q:\n%s", tt.args, tt.want, tt.absent, &stdout)
		}
	}
	for _, tt := range []struct{ where, want string }{{"method", "of type bool"}, {"team == 1", "fields are"},
		{"", "where"}, {`labels["x"] == "y"`, "no such key"}} {
		var stdout, stderr bytes.Buffer
		if err := Report(t.Context(), []string{"--where=" + tt.where, time}, &stdout, &stderr); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("--where=%s: %v, want an error with %q", tt.where, err, tt.want)
		}
	}
}
