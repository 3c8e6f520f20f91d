package hotspot

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// TestLines compares the lines of interpreted frames with the line tables in the class file, as
// javap prints them.
func TestLines(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, "hotspot.ScopesGuest", "warm")
			p := vm.attach(t)
			tables := javap(t, vm)
			compared := 0
			for function, method := range compiledMethods(t, p) {
				for bci, line := range tables[function] {
					site := vmruntime.Site{Kind: vmruntime.Interpreted, Method: method, BCI: bci}
					frames, err := p.Lookup(site)
					if err != nil || frames[0].Line != line || frames[0].File != "ScopesGuest.java" {
						t.Errorf("%s at %d: %+v, %v; javap says line %d", function, bci, frames, err, line)
					}
					compared++
				}
			}
			if compared < 20 {
				t.Errorf("only %d entries compared", compared)
			}
		})
	}
}

// compiledMethods returns the Methods of the guest's own class that are compiled, by function.
func compiledMethods(t *testing.T, p *Process) map[string]uint64 {
	t.Helper()
	methods := make(map[string]uint64)
	if err := p.Cache.Walk(&p.Codes.Schema.Blob, func(blobs []codecache.Blob) error {
		for _, b := range blobs {
			if named, ok := p.Versions.Find(b.Version(), b.Begin); ok && named.Class == "hotspot/ScopesGuest" {
				methods[methodinfo.FunctionName(named.Class, named.Name)] = b.Method
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return methods
}

var (
	javapMethod = regexp.MustCompile(`^  [a-z].* ([\w$]+)\(.*\).*;$`)
	javapLine   = regexp.MustCompile(`^ +line (\d+): (\d+)$`)
)

// javap returns the line tables of the guest's class: function, bytecode index, line.
func javap(t *testing.T, vm *jvm) map[string]map[int32]int {
	t.Helper()
	javap := exec.Command(filepath.Join(vm.home, "bin/javap"), "-c", "-l", "-p", "-cp", vm.classes,
		"hotspot.ScopesGuest")
	out, err := javap.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("javap: %w", err))
	}
	tables := make(map[string]map[int32]int)
	function := ""
	for text := range strings.Lines(string(out)) {
		text = strings.TrimSuffix(text, "\n")
		if text == "  static {};" {
			function = "hotspot.ScopesGuest.<clinit>"
			tables[function] = make(map[int32]int)
		} else if m := javapMethod.FindStringSubmatch(text); m != nil {
			function = "hotspot.ScopesGuest." + m[1]
			tables[function] = make(map[int32]int)
		}
		if m := javapLine.FindStringSubmatch(text); m != nil && function != "" {
			line, _ := strconv.Atoi(m[1])
			bci, _ := strconv.Atoi(m[2])
			tables[function][int32(bci)] = line
		}
	}
	return tables
}
