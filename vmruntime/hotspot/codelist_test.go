package hotspot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// A listed is a line of jcmd Compiler.codelist: "id level state class.name(signature) [blob,
// begin - end]".
type listed struct {
	version          uint32
	level            int
	function         string
	signature        string
	blob, begin, end uint64
}

var codelistLine = regexp.MustCompile(`^(\d+) (\d) -?\d (.+)\.([^.(]+)(\(.*) \[0x([0-9a-f]+), 0x([0-9a-f]+) - 0x([0-9a-f]+)\]$`)

func codelist(t *testing.T, vm *jvm) map[uint32]listed {
	t.Helper()
	all := make(map[uint32]listed)
	for line := range strings.Lines(vm.jcmd(t, "Compiler.codelist")) {
		m := codelistLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		hex := func(s string) uint64 { n, _ := strconv.ParseUint(s, 16, 64); return n }
		id, _ := strconv.Atoi(m[1])
		level, _ := strconv.Atoi(m[2])
		all[uint32(id)] = listed{
			version: uint32(id), level: level,
			function:  methodinfo.ClassName([]byte(strings.ReplaceAll(m[3], ".", "/"))) + "." + m[4],
			signature: m[5],
			blob:      hex(m[6]), begin: hex(m[7]), end: hex(m[8]),
		}
	}
	if len(all) < 100 {
		t.Fatalf("the guest lists only %d compilations", len(all))
	}
	return all
}

// TestCodelist compares what the walk and Lookup say with what the guest itself says about all
// compilations that were there before and after.
func TestCodelist(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, "hotspot.ScopesGuest", "warm")
			before := codelist(t, vm)
			p := vm.attach(t)
			walked := make(map[uint32]codecache.Blob)
			if err := p.Cache.Walk(&p.Codes.Schema.Blob, func(blobs []codecache.Blob) error {
				for _, b := range blobs {
					if p.Compiled(&b) {
						walked[b.CompileID] = b
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			results := make(map[uint32][]vmruntime.Frame)
			for id, l := range before {
				frames, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Compiled, Version: l.version, PC: l.begin,
					Exact: true})
				if err == nil {
					results[id] = frames
				}
			}
			after := codelist(t, vm)
			compared := 0
			for id, want := range before {
				if _, ok := after[id]; !ok {
					continue
				}
				compared++
				b, ok := walked[id]
				if !ok || b.Addr != want.blob || b.Begin != want.begin || b.End != want.end ||
					int(b.Level) != want.level {
					t.Errorf("walk: %+v, %v; the guest says %+v", b, ok, want)
				}
				frames := results[id]
				if len(frames) == 0 {
					t.Errorf("nothing found of %+v", want)
					continue
				}
				outer := frames[len(frames)-1]
				if outer.Function != want.function || outer.Signature != want.signature {
					t.Errorf("lookup: %+v; the guest says %+v", outer, want)
				}
				named, ok := p.Versions.Find(id, want.begin)
				if !ok || methodinfo.FunctionName(named.Class, named.Name) != want.function {
					t.Errorf("remembered: %+v, %v; the guest says %+v", named, ok, want)
				}
			}
			t.Logf("%d compilations compared of %d", compared, len(before))
			if compared < len(before)*9/10 {
				t.Errorf("only %d of %d compilations stayed", compared, len(before))
			}
		})
	}
}

// TestPerfmap compares the names of stubs with those that the guest writes for perf.
func TestPerfmap(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, "hotspot.ScopesGuest", "warm")
			vm.jcmd(t, "Compiler.perfmap")
			file := fmt.Sprintf("/tmp/perf-%d.map", vm.pid)
			defer os.Remove(file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := vm.attach(t)
			compared := 0
			for line := range strings.Lines(string(text)) {
				fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
				begin, _ := strconv.ParseUint(strings.TrimPrefix(fields[0], "0x"), 16, 64)
				size, _ := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 64)
				first, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Stub, PC: begin})
				if errors.Is(err, vmruntime.ErrStale) {
					continue // a compiled method
				}
				last, err2 := p.Lookup(vmruntime.Site{Kind: vmruntime.Stub, PC: begin + size - 1})
				if err != nil || err2 != nil {
					t.Errorf("%s: %v, %v", line, err, err2)
					continue
				}
				for _, frames := range [][]vmruntime.Frame{first, last} {
					if want := stubName(fields[2]); !want.MatchString(frames[0].Function) {
						t.Errorf("%s: got %s, want %v", line, frames[0].Function, want)
					}
				}
				compared++
			}
			if compared < 200 {
				t.Errorf("only %d stubs compared", compared)
			}
		})
	}
}

// stubName is what a code blob that the guest calls name may be called here: some have parts with
// names of their own.
func stubName(name string) *regexp.Regexp {
	switch {
	case name == "Interpreter":
		return regexp.MustCompile(`^\[interpreter(: .+)?\]$`)
	case name == "vtable chunks":
		return regexp.MustCompile(`^\[vtable stub\]$`)
	case name == "I2C/C2I adapters":
		return regexp.MustCompile(`^\[i2c/c2i adapter\]$`)
	case strings.HasPrefix(name, "StubRoutines"), strings.HasPrefix(name, "VM_Version"),
		name == "MethodHandles adapters",
		strings.HasPrefix(name, "getCPUID"):
		return regexp.MustCompile(`^\[stub: .+\]$`)
	}
	return regexp.MustCompile(`^\[stub: ` + regexp.QuoteMeta(name) + `\]$`)
}

// TestInterpreterCodelets: every part of the interpreter has a name, and no two parts overlap.
func TestInterpreterCodelets(t *testing.T) {
	for name := range recordings {
		p := loadRecording(t, name+".gz").attach(t, nil)
		codelets, err := codecache.ReadCodelets(p.Memory, &p.Codes.Schema.Stubs)
		if err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for i, c := range codelets {
			names[c.Name] = true
			if i > 0 && c.Begin < codelets[i-1].End || c.End > p.Layout().Interpreter.High {
				t.Errorf("%s: %+v overlaps", name, c)
			}
		}
		for _, want := range []string{"invokevirtual", "iadd", "method entry point (kind = zerolocals)"} {
			if !names[want] {
				t.Errorf("%s: no codelet is called %q", name, want)
			}
		}
	}
}
