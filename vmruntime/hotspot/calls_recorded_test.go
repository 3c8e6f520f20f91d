package hotspot

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// callRecordings are recorded guests that make known calls: to each belong NAME.gz, its memory, and
// NAME.txt, what was counted in it.
var callRecordings = map[string]string{
	"testdata/calls17": "/usr/lib/jvm/java-17-openjdk-amd64",
	"testdata/calls25": "/usr/lib/jvm/temurin-25-jdk-amd64",
}

// TestRecordedCalls reads the counts of recorded guests.
func TestRecordedCalls(t *testing.T) {
	for name, home := range callRecordings {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if *update {
				recordCalls(t, home, name)
			}
			p := loadRecording(t, name+".gz").attach(t, func() uint32 { return 0 })
			want, err := os.ReadFile(name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			if got := callsText(t, p); got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// recordCalls runs the guest, reads it through a recorder, and writes down what was read and what
// came of it.
func recordCalls(t *testing.T, home, name string) {
	vm := startGuest(t, home, []string{callsSource}, "hotspot.CallsGuest", "100000")
	if err := unix.Kill(vm.pid, unix.SIGSTOP); err != nil { // so that all of it is of one moment
		t.Fatal(err)
	}
	recorder := &recorder{Memory: vm.mem}
	vm.mem = recorder
	text := callsText(t, vm.attach(t))
	if err := os.WriteFile(name+".txt", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	vm.recording(recorder).save(t, name+".gz")
}

// callsText reads what the guest's own methods call, and how they were compiled.
func callsText(t *testing.T, p *Process) string {
	t.Helper()
	var compilations []vmruntime.Compilation
	methods := make(map[uint64]bool)
	trees := make(map[uint32]*vmruntime.InlineTree)
	if err := p.Compilations(func(c vmruntime.Compilation) bool {
		named, _ := p.Versions.Find(c.Version, c.Begin)
		if !strings.HasPrefix(named.Class, "hotspot/") {
			return true
		}
		compilations = append(compilations, c)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range compilations {
		passing, err := p.PassingTree(c)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := p.InlineTree(c)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(passing, tree) {
			t.Errorf("version %d: %+v, and %+v if nothing is remembered", c.Version, tree, passing)
		}
		trees[c.Version] = tree
		for _, n := range tree.Nodes {
			methods[n.Method] = true
		}
	}
	profiles, err := p.Profiles(slices.Sorted(maps.Keys(methods)))
	if err != nil {
		t.Fatal(err)
	}
	for _, profile := range profiles {
		for _, c := range profile.Calls {
			for _, target := range targetsOf(c) {
				methods[target] = true
			}
		}
	}
	name := methodNames(t, p, slices.Sorted(maps.Keys(methods)))
	var text strings.Builder
	ordered := slices.SortedFunc(maps.Values(profiles), func(a, b *vmruntime.MethodProfile) int {
		return cmp.Or(cmp.Compare(name[a.Method], name[b.Method]), cmp.Compare(a.Method, b.Method))
	})
	for _, m := range ordered {
		fmt.Fprintf(&text, "%s: counted %v, invoked %d, before %d\n", name[m.Method], m.Counted, m.Invocations,
			m.Before)
		for _, c := range m.Calls {
			fmt.Fprintf(&text, "  %d %v %d %s%s -> %s\n", c.BCI, c.Kind, c.Count, c.Function, c.Signature,
				name[c.Target])
			for _, r := range c.Receivers {
				fmt.Fprintf(&text, "    %s %d -> %s\n", r.Class, r.Count, name[r.Target])
			}
		}
	}
	var compiled []uint64
	for _, c := range compilations {
		compiled = append(compiled, c.Method)
	}
	current, err := p.Current(compiled)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range compilations {
		if now, ok := current[c.Method]; ok && now.Version == c.Version {
			if now != c {
				t.Errorf("current is %+v, in the code cache it is %+v", now, c)
			}
			fmt.Fprint(&text, "entered by calls: ")
		}
		fmt.Fprintf(&text, "compilation %d of %s: level %d, loop %d, in use %v, entries %d and %d, frame %d of %d "+
			"bytes\n",
			c.Version, name[c.Method], c.Level, c.EntryBCI, c.InUse,
			c.Entry-c.Begin, c.VerifiedEntry-c.Begin, c.FrameComplete-c.Begin, c.End-c.Begin)
		site := vmruntime.Site{Kind: vmruntime.Compiled, Version: c.Version, Exact: true}
		fmt.Fprint(&text, "  edges:")
		for site.PC = c.Begin; site.PC < c.End; site.PC++ {
			if edge, err := p.AtEdge(site); err != nil {
				t.Fatal(err)
			} else if edge && site.PC >= c.FrameComplete {
				fmt.Fprintf(&text, " %d", site.PC-c.Begin)
			}
		}
		fmt.Fprintln(&text)
		for i, n := range trees[c.Version].Nodes {
			fmt.Fprintf(&text, "  %d: %s at %d of %d, calls %v\n", i, name[n.Method], n.BCI, n.Parent, n.Calls)
		}
	}
	return text.String()
}

func methodNames(t *testing.T, p *Process, methods []uint64) map[uint64]string {
	t.Helper()
	places := make([]vmruntime.Scope, len(methods))
	for i, m := range methods {
		places[i] = vmruntime.Scope{Method: m, BCI: 0}
	}
	frames, err := p.Names(places)
	if err != nil {
		t.Fatal(err)
	}
	name := map[uint64]string{0: "?"}
	for i, f := range frames {
		if f.Function != "" {
			name[methods[i]] = fmt.Sprintf("%s%s:%d", f.Function, f.Signature, f.Line)
		}
	}
	return name
}

// FuzzProfiles changes recorded memory at random. There must be an answer or an error, and no more
// calls than bytecode.
func FuzzProfiles(f *testing.F) {
	type guest struct {
		*recording
		compilations []vmruntime.Compilation
	}
	var guests []guest
	for _, name := range slices.Sorted(maps.Keys(callRecordings)) {
		g := guest{recording: loadRecording(f, name+".gz")}
		p := g.attach(f, nil)
		if err := p.Compilations(func(c vmruntime.Compilation) bool {
			if named, _ := p.Versions.Find(c.Version, c.Begin); strings.HasPrefix(named.Class, "hotspot/") {
				g.compilations = append(g.compilations, c)
			}
			return true
		}); err != nil {
			f.Fatal(err)
		}
		guests = append(guests, g)
	}
	f.Add([]byte{}, false)
	f.Add([]byte{0, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f}, true)
	f.Add([]byte("\x00\x40\x00\x00\x01\x00\x00\x00\x00\x80\x02\x00\xff\xff\x00\x00"), false)
	f.Fuzz(func(t *testing.T, changes []byte, late bool) {
		g := guests[0]
		if late {
			g = guests[1]
		}
		mem := g.memory()
		vm, err := g.image().Attach(vmruntime.Target{Memory: mem, Bias: g.Bias, Epoch: func() uint32 { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		p := vm.(*Process)
		defer change(mem, changes)()
		var methods []uint64
		for _, c := range g.compilations {
			tree, err := p.InlineTree(c)
			if (err == nil) != (tree != nil) {
				t.Fatalf("%v, %v", tree, err)
			}
			if err != nil {
				continue
			}
			for i, n := range tree.Nodes {
				if n.Parent >= i {
					t.Fatalf("node %d is in node %d", i, n.Parent)
				}
				methods = append(methods, n.Method)
			}
		}
		profiles, err := p.Profiles(methods)
		if (err == nil) != (profiles != nil) {
			t.Fatalf("%v, %v", profiles, err)
		}
		for m, profile := range profiles {
			if profile.Method != m || len(profile.Calls) > (1<<16-1)/3 {
				t.Fatalf("%#x: %+v", m, profile)
			}
		}
	})
}
