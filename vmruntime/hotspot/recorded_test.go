package hotspot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

var update = flag.Bool("update", false, "record guests anew, with their goldens")

// recordings are the recorded guests: one for each JDK that is tested. To each belong NAME.gz, its
// memory; NAME.json, what Attach must find out; and NAME.jsonl, what Lookup must answer, a site a
// line.
var recordings = map[string]string{
	"testdata/jdk17": "/usr/lib/jvm/java-17-openjdk-amd64",
	"testdata/jdk25": "/usr/lib/jvm/temurin-25-jdk-amd64",
}

// An attachment is what is known after Attach.
type attachment struct {
	Version string
	Notes   []string
	Layout  javavm.Layout
}

// A lookup is a site and what came of it: a frame each, or the error.
type lookup struct {
	Site   siteText
	Result []string
}

// siteText is a vmruntime.Site that leaves out what is zero.
type siteText struct {
	Kind    vmruntime.SiteKind `json:",omitempty"`
	Exact   bool               `json:",omitempty"`
	Version uint32             `json:",omitempty"`
	PC      uint64             `json:",omitempty"`
	Method  uint64             `json:",omitempty"`
	BCI     int32              `json:",omitempty"`
	Epoch   uint32             `json:",omitempty"`
}

// TestRecorded attaches to recorded guests and looks up all that was looked up when they were
// recorded.
func TestRecorded(t *testing.T) {
	for name, home := range recordings {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if *update {
				record(t, home, name)
			}
			p := loadRecording(t, name+".gz").attach(t, func() uint32 { return 0 })
			want, err := os.ReadFile(name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if got := attachmentOf(t, p); got != string(want) {
				t.Errorf("attachment: got\n%s\nwant\n%s", got, want)
			}
			for _, want := range loadLookups(t, name) {
				if got, want := encode(t, lookUp(p, vmruntime.Site(want.Site))), encode(t, want); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
		})
	}
}

func attachmentOf(t testing.TB, p *Process) string {
	b, err := json.MarshalIndent(attachment{p.Describe(), p.Notes(), *p.Layout()}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func loadLookups(t testing.TB, name string) (all []lookup) {
	t.Helper()
	f, err := os.Open(name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l lookup
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

func encode(t testing.TB, l lookup) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // <init>
	if err := e.Encode(l); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func lookUp(p *Process, site vmruntime.Site) lookup {
	frames, err := p.Lookup(site)
	if err != nil {
		return lookup{siteText(site), []string{"error: " + err.Error()}}
	}
	l := lookup{Site: siteText(site)}
	for _, f := range frames {
		l.Result = append(l.Result, frameText(f))
	}
	return l
}

// frameText is a frame on a line: "app.Main.run(I)V (Main.java:7) bci 12, C2".
func frameText(f vmruntime.Frame) string {
	tiers := map[vmruntime.Tier]string{
		vmruntime.TierInterpreter: "interpreter", vmruntime.TierC1: "C1", vmruntime.TierC2: "C2",
		vmruntime.TierNative: "native", vmruntime.TierStub: "stub",
	}
	if f.Tier == vmruntime.TierStub {
		return f.Function
	}
	text := fmt.Sprintf("%s%s (%s:%d) bci %d, %s", f.Function, f.Signature, f.File, f.Line, f.BCI, tiers[f.Tier])
	if f.Approximate {
		text += ", approximate"
	}
	return text
}

// record runs the guest, reads it through a recorder, and writes down what was read and what came
// of it.
func record(t *testing.T, home, name string) {
	vm := startJVM(t, home, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints", "hotspot.ScopesGuest", "warm")
	if err := unix.Kill(vm.pid, unix.SIGSTOP); err != nil { // so that all of it is of one moment
		t.Fatal(err)
	}
	recorder := &recorder{Memory: vm.mem}
	vm.mem = recorder
	p := vm.attach(t)
	if err := os.WriteFile(name+".json", []byte(attachmentOf(t, p)), 0o644); err != nil {
		t.Fatal(err)
	}
	var lookups strings.Builder
	for _, site := range sites(t, p) {
		lookups.WriteString(encode(t, lookUp(p, site)))
	}
	if err := os.WriteFile(name+".jsonl", []byte(lookups.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	vm.recording(recorder).save(t, name+".gz")
}

// sites chooses what to look up: some places in every method of the guest and some native ones,
// compiled and interpreted; some of every kind of stub; and places where nothing is.
func sites(t *testing.T, p *Process) (all []vmruntime.Site) {
	const perKind, natives = 2, 6
	last := uint64(0) // byte of the first heap's code
	stubs := make(map[string]int)
	var methods []codecache.Blob
	err := p.Cache.Walk(&p.Codes.Schema.Blob, func(blobs []codecache.Blob) error {
		for _, b := range blobs {
			if p.Cache.HeapOf(b.Addr) == &p.Cache.Heaps[0] {
				last = max(last, b.End-1)
			}
			name := p.Kinds.Names[b.Name]
			named, _ := p.Versions.Find(b.Version(), b.Begin)
			switch {
			case !p.Compiled(&b):
				if stubs[name]++; stubs[name] <= perKind {
					all = append(all, vmruntime.Site{Kind: vmruntime.Stub, PC: b.Begin},
						vmruntime.Site{Kind: vmruntime.Stub, PC: (b.Begin + b.End) / 2})
				}
			case strings.HasPrefix(named.Class, "hotspot/"):
				methods = append(methods, b)
			case p.Kinds.Lookup(b.Name) == codecache.KindNative:
				if stubs[name]++; stubs[name] <= natives {
					methods = append(methods, b)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range methods {
		all = append(all, sitesIn(t, p, b)...)
	}
	return append(all,
		vmruntime.Site{Kind: vmruntime.Compiled, PC: 0x1000},
		vmruntime.Site{Kind: vmruntime.Compiled, PC: last | (1<<p.Cache.Shift - 1)})
}

func sitesIn(t *testing.T, p *Process, b codecache.Blob) (all []vmruntime.Site) {
	const positions = 8
	site := vmruntime.Site{Kind: vmruntime.Compiled, Version: b.Version(), PC: b.Begin, Exact: true}
	all = append(all, site)
	site.PC += uint64(b.FrameComplete) + 5
	all = append(all, site)
	site.Exact = false
	for i := range uint64(positions) {
		site.PC = b.Begin + i*(b.End-b.Begin)/positions
		all = append(all, site)
	}
	for _, bci := range []int32{-1, 0, 11} {
		all = append(all, vmruntime.Site{Kind: vmruntime.Interpreted, Method: b.Method, BCI: bci})
	}
	return all
}
