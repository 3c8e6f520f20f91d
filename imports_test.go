package vmprofagent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/vmprof-agent/vmprof-agent"

// layers lists every package with the packages of this module that it may import, from the bottom up. A package named
// here that ends in /... stands for all below it. Packages below tests may import everything.
var layers = []struct{ packages, imports string }{
	// Algorithms and file formats.
	{"cct version elffile web", ""},
	{"elffile/elftest elffile/pclntab", "elffile"},
	{"symbolize", "elffile elffile/pclntab"},

	// What a VM keeps where.
	{"vmruntime", "elffile"},
	{"vmruntime/perfmap", "vmruntime"},
	{"vmruntime/hotspot/vmstructs vmruntime/hotspot/vmtest", "vmruntime"},
	{"vmruntime/hotspot/calldata vmruntime/hotspot/codecache vmruntime/hotspot/debuginfo", "vmruntime vmruntime/hotspot/vmstructs"},
	{"vmruntime/hotspot/javaheap", "vmruntime vmruntime/hotspot/debuginfo vmruntime/hotspot/vmstructs"},
	{"vmruntime/hotspot", "elffile vmruntime vmruntime/hotspot/calldata vmruntime/hotspot/codecache vmruntime/hotspot/debuginfo " +
		"vmruntime/hotspot/javaheap vmruntime/hotspot/vmstructs"},

	// The kernel side and the machine.
	{"bpf contrib/guest contrib/rules/team-labels agent/privilege agent/retry agent/ring", ""},
	{"agent/proc", "vmruntime"},
	{"agent/probesite agent/valueprobe", "elffile"},
	{"agent/library", "agent/proc"},
	{"agent/intern", "agent/proc bpf"},
	{"agent/attach", "bpf elffile agent/probesite agent/proc agent/valueprobe"},
	{"agent/runtimes/bridge", "agent/attach agent/proc bpf elffile vmruntime"},
	{"agent/runtimes/hotspotbpf", "agent/attach agent/runtimes/bridge bpf elffile vmruntime vmruntime/hotspot vmruntime/hotspot/javaheap"},
	{"agent/runtimes", "agent/runtimes/bridge agent/runtimes/hotspotbpf vmruntime/hotspot vmruntime/perfmap"},
	{"agent/probesite/hitcost", "agent/attach agent/probesite agent/proc"},

	// The result. Whoever writes, reads or serves it does not know the agent.
	{"agent/profile", "cct symbolize"},
	{"agent/cause", "symbolize"},
	{"agent/stored", "agent/cause agent/profile symbolize"},
	{"agent/audit agent/timing agent/timing/place", ""},
	{"agent/audit/audittest", "agent/audit"},
	{"agent/report/layout", "agent/stored cct"},
	{"agent/report/stacks", "agent/cause agent/profile agent/report/layout agent/stored cct"},
	{"agent/report/compare", "agent/audit agent/profile agent/report/layout agent/report/stacks agent/stored cct"},
	{"agent/report", "agent/audit agent/cause agent/profile agent/report/compare agent/report/layout agent/report/stacks agent/stored cct"},
	{"agent/report/flame", "agent/audit agent/profile agent/report agent/report/layout agent/report/stacks agent/stored"},
	{"agent/report/timeline", "agent/cause agent/report agent/report/layout agent/stored"},
	{"agent/report/versions", "agent/audit agent/profile agent/report agent/report/compare agent/report/layout agent/report/stacks agent/stored"},
	{"agent/price", "agent/report/stacks agent/stored"},
	{"agent/advise/gopgo", "agent/stored"},
	{"agent/advise/hotspot", "agent/profile agent/report/stacks agent/report/versions agent/stored cct"},
	{"agent/outfile", ""},
	{"agent/socketfile", "agent/outfile"},
	{"agent/sink", "agent/outfile agent/profile agent/report agent/report/flame agent/stored cct symbolize web"},
	{"agent/sink/sinktest", "agent/profile agent/report agent/report/stacks agent/sink agent/stored cct symbolize"},
	{"agent/history", "agent/outfile agent/proc agent/profile agent/sink agent/stored cct symbolize"},
	{"agent/program", "agent/privilege agent/profile agent/sink agent/stored"},
	{"agent/rule", "agent/profile agent/report/stacks agent/sink agent/stored"},
	{"agent/sink/prom", "agent/cause agent/history agent/proc agent/profile agent/program agent/rule cct"},
	{"agent/top", "agent/cause agent/profile agent/stored cct symbolize"},
	{"agent/httpd", "agent/audit agent/cause agent/history agent/profile agent/report/flame agent/report/stacks agent/report/versions agent/sink agent/socketfile agent/stored cct symbolize web"},

	// One process and its VM.
	{"agent/target/targettest", "agent/proc bpf"},
	{"agent/target", "agent/attach agent/library agent/proc agent/retry agent/runtimes/bridge bpf elffile symbolize vmruntime"},

	// What open windows hold.
	{"agent/fold/foldtest", "agent/target bpf symbolize"},
	{"agent/lanes", "agent/cause agent/profile"},
	{"agent/fold", "agent/cause agent/lanes agent/proc agent/profile agent/target bpf cct symbolize vmruntime"},

	{"agent/wall", "agent/cause agent/profile agent/target cct symbolize"},

	// How calls and locks are sampled.
	{"agent/calls", "agent/profile agent/stored bpf"},
	{"agent/calls/estimate", "agent/profile"},
	{"agent/doctor", "agent/attach agent/privilege agent/proc agent/profile agent/runtimes agent/runtimes/bridge bpf symbolize"},
	{"agent/budget", "agent/calls agent/profile"},
	{"agent/watch", "agent/attach agent/proc agent/ring bpf vmruntime"},
	{"agent/calls/branch agent/calls/listener agent/calls/page agent/calls/usdt", "agent/attach agent/budget agent/calls agent/probesite agent/probesite/hitcost agent/proc agent/profile agent/stored agent/timing " +
		"agent/ring agent/socketfile agent/watch bpf cct elffile symbolize vmruntime"},

	// How invocations are timed.
	{"agent/timing/hotspot", "agent/attach agent/budget agent/probesite agent/proc agent/profile agent/runtimes agent/runtimes/bridge agent/stored agent/timing agent/timing/place agent/watch " +
		"bpf elffile symbolize vmruntime"},

	// What is recorded: sources, which know an agent by its services.
	{"agent/source", "agent/attach agent/fold agent/proc agent/profile agent/target agent/watch bpf"},
	{"agent/calls/exact", "agent/attach agent/fold agent/probesite agent/proc agent/profile agent/source agent/stored agent/target bpf cct elffile symbolize vmruntime"},
	{"agent/calls/counters", "agent/calls/exact agent/fold agent/proc agent/profile agent/source agent/stored agent/target cct symbolize vmruntime"},
	{"agent/calls/hotspot", "agent/budget agent/calls agent/calls/estimate agent/calls/listener agent/fold agent/proc agent/profile agent/retry agent/source agent/target " +
		"agent/watch bpf symbolize vmruntime"},
	{"agent/engines", "agent/budget agent/calls agent/calls/... agent/fold agent/proc agent/profile agent/retry agent/source agent/stored agent/target agent/watch bpf vmruntime"},
	{"agent/monitors", "agent/attach agent/budget agent/fold agent/probesite agent/proc agent/profile agent/ring agent/source agent/target agent/watch bpf elffile vmruntime"},
	{"agent/events", "agent/attach agent/budget agent/cause agent/fold agent/library agent/probesite agent/probesite/hitcost agent/proc agent/profile agent/retry " +
		"agent/source agent/target agent/valueprobe bpf cct elffile symbolize vmruntime"},

	{"agent/cputime", "agent/attach agent/fold agent/proc agent/profile agent/source bpf cct symbolize"},
	{"agent/slow", "agent/fold agent/proc agent/profile agent/source agent/timing/hotspot bpf"},

	{"agent", "agent/attach agent/slow agent/calls/counters agent/calls/exact agent/cputime agent/engines agent/events agent/fold agent/intern agent/library agent/monitors agent/proc agent/profile agent/ring " +
		"agent/runtimes agent/source agent/target agent/wall agent/watch bpf"},
	{"cmd/...", "agent agent/... elffile version vmruntime"},
}

// Imports point one way: from a package to what stands above it in layers.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for packages := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(p.ImportPath, module+"/")
		if !inside || strings.HasPrefix(name, "tests") {
			continue
		}
		i := slices.IndexFunc(layers, func(l struct{ packages, imports string }) bool { return stands(l.packages, name) })
		if i < 0 {
			t.Errorf("%s: layers does not list it", name)
			continue
		}
		for _, imported := range p.Imports {
			imported, inside := strings.CutPrefix(imported, module+"/")
			if inside && !stands(layers[i].imports, imported) {
				t.Errorf("%s imports %s; it may import only: %s", name, imported, layers[i].imports)
			}
		}
	}
}

// stands reports whether a list has a package.
func stands(list, name string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(one string) bool {
		below, all := strings.CutSuffix(one, "/...")
		return one == name || all && strings.HasPrefix(name, below+"/")
	})
}
