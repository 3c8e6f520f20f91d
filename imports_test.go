package vmprofagent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/vmprof-agent/vmprof-agent"

// profiling is what verbs import that have an agent.
const profiling = "agent agent/collect/... agent/host/... agent/model/... agent/probe/... agent/view/... " +
	"cmd/vmprof-agent/cli cmd/vmprof-agent/sampling cmd/vmprof-agent/self cmd/vmprof-agent/targets version"

// wings lists what each package may import of this module, from the bottom up. A name that ends in
// /... stands for all packages below it, and packages of one wing may import each other. Packages
// below tests may import everything.
var wings = []struct{ packages, imports string }{
	// The ground: algorithms and file formats.
	{"cct version elffile web symbolize/symbol contrib/...", ""},
	{"elffile/...", "elffile"},
	{"symbolize", "elffile elffile/pclntab symbolize/symbol"},

	// The ground: what a VM keeps where, and the kernel side.
	{"bpf", ""},
	{"vmruntime", "elffile"},
	{"vmruntime/perfmap", "vmruntime"},
	{"vmruntime/cpython", "elffile vmruntime"},
	{"vmruntime/hotspot vmruntime/hotspot/...", "elffile vmruntime"},

	// The agent, in the order in which data flows.
	{"agent/host agent/host/...", "vmruntime"},
	{"agent/probe agent/probe/...", "agent/host/... bpf elffile vmruntime"},
	{"agent/guest agent/guest/...",
		"agent/host/... agent/probe/... bpf elffile elffile/unwind symbolize symbolize/symbol vmruntime"},
	// no other package in agent and cmd imports a VM's
	{"agent/guest/runtimes agent/guest/runtimes/...", "agent/probe/... vmruntime/..."},
	{"agent/model agent/model/...", "cct symbolize/symbol"},
	{"agent/collect agent/collect/...",
		"agent/guest agent/guest/... agent/host/... agent/model/... agent/probe/... bpf cct elffile symbolize " +
			"symbolize/symbol vmruntime"},
	{"agent/view agent/view/...", "agent/host/... agent/model/... cct symbolize/symbol web"},
	{"agent/doctor", "agent/guest agent/guest/... agent/host/... agent/model/... agent/probe/... bpf symbolize " +
		"symbolize/symbol"},
	{"agent", "agent/collect/... agent/guest agent/guest/... agent/host/... agent/model/... agent/probe/... bpf"},

	// The command: what its verbs share, then the verbs.
	{"cmd/vmprof-agent/cli", "agent/model/..."},
	{"cmd/vmprof-agent/self", "agent agent/host/... agent/view/sink"},
	{"cmd/vmprof-agent/targets", "agent/collect/... agent/host/... agent/model/... cmd/vmprof-agent/cli"},
	{"cmd/vmprof-agent/sampling",
		"agent agent/collect/... agent/host/... agent/model/... agent/probe/... agent/view/sink cmd/vmprof-agent/cli " +
			"cmd/vmprof-agent/targets"},
	{"cmd/vmprof-agent/advise", "agent/host/... agent/view/... cmd/vmprof-agent/cli"},
	{"cmd/vmprof-agent/doctor", "agent agent/... cmd/vmprof-agent/cli elffile vmruntime"},
	{"cmd/vmprof-agent/probes", "agent/host/... agent/model/... agent/probe/... cmd/vmprof-agent/cli elffile"},
	{"cmd/vmprof-agent/audit",
		"agent/collect/... agent/host/... agent/model/... agent/probe/... agent/view/audit cmd/vmprof-agent/cli " +
			"cmd/vmprof-agent/self cmd/vmprof-agent/targets"},
	{"cmd/vmprof-agent/recordings", "agent/model/... agent/view/... cmd/vmprof-agent/cli cmd/vmprof-agent/sampling"},
	// no verb imports one that profiles
	{"cmd/vmprof-agent/record", profiling + " cmd/vmprof-agent/probes cmd/vmprof-agent/recordings"},
	{"cmd/vmprof-agent/serve", profiling + " cmd/vmprof-agent/probes"},
	{"cmd/vmprof-agent/top", profiling + " cmd/vmprof-agent/recordings"},
	{"cmd/vmprof-agent", "agent/collect/... agent/view/... cmd/vmprof-agent/... version"},
}

// Imports point one way: from a package to what stands above it in wings.
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
		var may []string // of its wing, and for its room in particular
		for _, w := range wings {
			if stands(w.packages, name) {
				may = append(may, w.packages, w.imports)
			}
		}
		if may == nil {
			t.Errorf("%s: wings does not list it", name)
		}
		for _, imported := range p.Imports {
			imported, inside := strings.CutPrefix(imported, module+"/")
			if inside && !stands(strings.Join(may, " "), imported) {
				t.Errorf("%s imports %s; it may import only: %s", name, imported, strings.Join(may, " "))
			}
		}
	}
}

// The architecture has a row for each package of the agent and the command.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| **ground** |")
	table, _, _ = strings.Cut(table, "\n\n")
	out, err := exec.CommandContext(t.Context(), "go", "list", "./agent/...", "./cmd/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, name := range strings.Fields(string(out)) {
		room := strings.TrimPrefix(strings.TrimPrefix(name, module+"/"), "agent/")
		if strings.HasSuffix(room, "test") {
			continue // what tests of other packages use
		}
		_, inWing, _ := strings.Cut(room, "/")
		if !slices.ContainsFunc([]string{room, inWing, path.Base(room)}, func(s string) bool {
			return strings.Contains(table, "`"+s+"`") || strings.Contains(table, "`agent/"+s+"`")
		}) {
			t.Errorf("docs/architecture.md has no row for %s", name)
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
