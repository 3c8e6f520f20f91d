package sink_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// layerRows returns the lines of the matrix as fields.
func layerRows(t *testing.T, p *profile.Profile, opts *sink.ViewOptions) (rows [][]string) {
	t.Helper()
	lines := strings.Split(show(t, sink.Layers, mustPprof(t, p), opts), "\n")
	for _, line := range lines[2:] {
		if strings.Contains(line, "%") {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

// Rows of Table 2 of Moret, Binder and Villazón: a program whose calls have these shares gives that row.
func TestLayersTable2(t *testing.T) {
	app, lib := javaMethod("org.apache.Main.run()V"), javaMethod("java.util.List.get(I)Ljava/lang/Object;")
	otherApp, otherLib := javaMethod("javanese.Main.run()V"), javaMethod("com.sun.crypto.Cipher.run()V")
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
		edges := &profile.Profile{Processes: []*profile.Process{{PID: 1, Comm: row.benchmark, Calls: []*profile.Calls{{Engine: "hotspot", Graph: callGraph(
			called{app, unknown, otherApp, 100 * row.shares[0]},
			called{lib, unknown, app, 100 * row.shares[1]},
			called{app, unknown, otherLib, 100 * row.shares[2]},
			called{otherLib, unknown, lib, 100 * row.shares[3]},
		)}}}}}
		weight := func(i int) uint64 { return uint64(100*row.shares[i] + 0.5) }
		type stack = []symbolize.Frame
		contexts := &profile.Profile{Unit: profile.CallCounts, Processes: []*profile.Process{{PID: 1, Comm: row.benchmark, Threads: []*profile.Thread{{Tree: contextTree(
			sampled{weight(0), stack{app, otherApp, lib}},
			sampled{weight(1), stack{app, lib, app}},
			sampled{weight(2), stack{lib, app}},
			sampled{weight(3), stack{lib, otherLib, lib, app}},
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
	native := symbolize.Frame{Function: "JavaMain", Kind: symbolize.KindNative, Mapping: libjvm}
	type stack = []symbolize.Frame
	p := &profile.Profile{Unit: profile.CallCounts, Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{Tree: contextTree(
		sampled{1, stack{shopRun}},
		sampled{2, stack{shopRun, native}},
		sampled{4, stack{nowhere, shopRun}},
		sampled{1, nil},
		sampled{8, stack{cartTotal, shopRun}},
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
		p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Graph: callGraph(
			called{shopRun, unknown, cartTotal, 1}, called{cartTotal, unknown, bookPrice, 2}, called{cartTotal, unknown, mapGet, 1},
			called{mapGet, unknown, mapGet, 1}, called{shopRun, unknown, bookPrice, 2},
		)}}}}}
		got := layerRows(t, p, &sink.ViewOptions{App: regexp.MustCompile(test.app)})
		if len(got) != 1 || strings.Join(got[0][:5], " ") != test.want {
			t.Errorf("%s: %q, want %s", test.app, got, test.want)
		}
	}
}

func TestLayersGolden(t *testing.T) {
	golden(t, "calls.layers.golden", show(t, sink.Layers, mustPprof(t, shopCalls()), nil))
	if got := show(t, sink.Layers, mustPprof(t, shopCalls()), &sink.ViewOptions{N: 1}); !strings.Contains(got, "1 more line\n") {
		t.Errorf("Layers =\n%s", got)
	}
}
