package report_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report"
	"github.com/vmprof-agent/vmprof-agent/agent/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// layerRows returns the lines of the matrix as fields.
func layerRows(t *testing.T, p *profile.Profile, opts *report.ViewOptions) (rows [][]string) {
	t.Helper()
	lines := strings.Split(sinktest.Show(t, report.Layers, sinktest.MustPprof(t, p), opts), "\n")
	for _, line := range lines[2:] {
		if strings.Contains(line, "%") {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

// Rows of Table 2 of Moret, Binder and Villazón: a program whose calls have these shares gives that row.
func TestLayersTable2(t *testing.T) {
	app, lib := sinktest.JavaMethod("org.apache.Main.run()V"), sinktest.JavaMethod("java.util.List.get(I)Ljava/lang/Object;")
	otherApp, otherLib := sinktest.JavaMethod("javanese.Main.run()V"), sinktest.JavaMethod("com.sun.crypto.Cipher.run()V")
	for _, row := range []struct {
		benchmark string
		shares    [4]float64 // App->App JDK->App App->JDK JDK->JDK
		want      []string
	}{
		{"antlr", [4]float64{58.33, 0.10, 5.49, 36.08}, []string{"58.33%", "0.10%", "5.49%", "36.08%"}},
		{"bloat", [4]float64{32.16, 14.91, 18.06, 34.87}, []string{"32.16%", "14.91%", "18.06%", "34.87%"}},
		{"db", [4]float64{0.08, 1.26, 74.68, 23.98}, []string{"0.08%", "1.26%", "74.68%", "23.98%"}},
	} {
		unknown := profile.Site{Offset: -1}
		edges := &profile.Profile{Processes: []*profile.Process{{PID: 1, Comm: row.benchmark, Calls: []*profile.Calls{{Engine: "hotspot", Graph: sinktest.CallGraph(
			sinktest.Called{Caller: app, Site: unknown, Callee: otherApp, Weight: 100 * row.shares[0]},
			sinktest.Called{Caller: lib, Site: unknown, Callee: app, Weight: 100 * row.shares[1]},
			sinktest.Called{Caller: app, Site: unknown, Callee: otherLib, Weight: 100 * row.shares[2]},
			sinktest.Called{Caller: otherLib, Site: unknown, Callee: lib, Weight: 100 * row.shares[3]},
		)}}}}}
		weight := func(i int) uint64 { return uint64(100*row.shares[i] + 0.5) }
		type stack = []symbolize.Frame
		contexts := &profile.Profile{Unit: profile.CallCounts, Processes: []*profile.Process{{PID: 1, Comm: row.benchmark, Threads: []*profile.Thread{{Tree: sinktest.ContextTree(
			sinktest.Sampled{Weight: weight(0), Frames: stack{app, otherApp, lib}},
			sinktest.Sampled{Weight: weight(1), Frames: stack{app, lib, app}},
			sinktest.Sampled{Weight: weight(2), Frames: stack{lib, app}},
			sinktest.Sampled{Weight: weight(3), Frames: stack{lib, otherLib, lib, app}},
		)}}}}}
		for engine, p := range map[string]*profile.Profile{"hotspot": edges, "exact": contexts} {
			want := append(slices.Clone(row.want), "0.00%", "10000", row.benchmark, "(pid", "1),", engine)
			if got := layerRows(t, p, nil); len(got) != 1 || !slices.Equal(got[0], want) {
				t.Errorf("%s: %q, want %q", row.benchmark, got, want)
			}
		}
	}
}

// What has no name, is native, or is called by nobody is in none of the four.
func TestLayersOthers(t *testing.T) {
	native := symbolize.Frame{Function: "JavaMain", Kind: symbolize.KindNative, Mapping: sinktest.Libjvm}
	type stack = []symbolize.Frame
	p := &profile.Profile{Unit: profile.CallCounts, Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{Tree: sinktest.ContextTree(
		sinktest.Sampled{Weight: 1, Frames: stack{sinktest.ShopRun}},
		sinktest.Sampled{Weight: 2, Frames: stack{sinktest.ShopRun, native}},
		sinktest.Sampled{Weight: 4, Frames: stack{sinktest.Nowhere, sinktest.ShopRun}},
		sinktest.Sampled{Weight: 1, Frames: nil},
		sinktest.Sampled{Weight: 8, Frames: stack{sinktest.CartTotal, sinktest.ShopRun}},
	)}}}}}
	if got := layerRows(t, p, nil); len(got) != 1 || strings.Join(got[0][:6], " ") != "50.00% 0.00% 0.00% 0.00% 50.00% 16" {
		t.Errorf("rows %q", got)
	}
}

func TestLayersApp(t *testing.T) {
	for _, test := range []struct {
		app  string
		want string
	}{
		{`^(?:com\.acme\.)`, "71.43% 0.00% 14.29% 14.29% 0.00%"},
		{`^(?:com\.acme\.Cart\.)`, "0.00% 14.29% 42.86% 42.86% 0.00%"},
		{`^(?:nothing)`, "0.00% 0.00% 0.00% 100.00% 0.00%"},
	} {
		unknown := profile.Site{Offset: -1}
		p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Graph: sinktest.CallGraph(
			sinktest.Called{Caller: sinktest.ShopRun, Site: unknown, Callee: sinktest.CartTotal, Weight: 1}, sinktest.Called{Caller: sinktest.CartTotal, Site: unknown, Callee: sinktest.BookPrice, Weight: 2}, sinktest.Called{Caller: sinktest.CartTotal, Site: unknown, Callee: sinktest.MapGet, Weight: 1},
			sinktest.Called{Caller: sinktest.MapGet, Site: unknown, Callee: sinktest.MapGet, Weight: 1}, sinktest.Called{Caller: sinktest.ShopRun, Site: unknown, Callee: sinktest.BookPrice, Weight: 2},
		)}}}}}
		got := layerRows(t, p, &report.ViewOptions{App: regexp.MustCompile(test.app)})
		if len(got) != 1 || strings.Join(got[0][:5], " ") != test.want {
			t.Errorf("%s: %q, want %s", test.app, got, test.want)
		}
	}
}

func TestLayersGolden(t *testing.T) {
	sinktest.Golden(t, "calls.layers.golden", sinktest.Show(t, report.Layers, sinktest.MustPprof(t, sinktest.ShopCalls()), nil))
	if got := sinktest.Show(t, report.Layers, sinktest.MustPprof(t, sinktest.ShopCalls()), &report.ViewOptions{N: 1}); !strings.Contains(got, "1 more line\n") {
		t.Errorf("Layers =\n%s", got)
	}
}
