package sink_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update)", err)
	}
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("%s differs (run the test with -update and look at the change):\n%s", path, got)
	}
}

// Mappings of the shop.
var (
	java     = symbolize.Mapping{File: "/usr/lib/jvm/java-17/bin/java", BuildID: "aa11", Start: 0x5500_0000_0000, Limit: 0x5500_0000_4000}
	bash     = symbolize.Mapping{File: "/usr/bin/bash", BuildID: "cc33", Start: 0x5600_0000_0000, Limit: 0x5600_0010_0000}
	jit      = unique.Make(symbolize.Mapping{File: "[jit:HotSpot]", Start: 0x7f00_0000_0000, Limit: 0x7f00_1000_0000})
	libjvm   = unique.Make(symbolize.Mapping{File: "/usr/lib/jvm/java-17/lib/server/libjvm.so", BuildID: "bb22", Start: 0x7e00_0000_0000, Limit: 0x7e00_0100_0000, Offset: 0x1000})
	kernel   = unique.Make(symbolize.Mapping{File: "[kernel]"})
	bashFile = unique.Make(bash)
)

// Frames of the shop.
var (
	run      = symbolize.Frame{Function: "java.lang.Thread.run", SystemName: "java.lang.Thread.run()V", File: "Thread.java", Line: 840, Kind: symbolize.KindInterpreted, Mapping: jit}
	callStub = symbolize.Frame{Function: "StubRoutines (call_stub)", Kind: symbolize.KindStub, Mapping: jit, Address: 0x7f00_0000_0100}
	checkout = symbolize.Frame{Function: "com.acme.Shop.checkout", SystemName: "com.acme.Shop.checkout(Lcom/acme/Cart;)J", File: "Shop.java", Line: 10, Kind: symbolize.KindJIT, Mapping: jit, Address: 0x7f00_0000_1000}
	slow     = symbolize.Frame{Function: "com.acme.Shop.checkout", SystemName: "com.acme.Shop.checkout(Lcom/acme/Cart;)J", File: "Shop.java", Line: 12, Kind: symbolize.KindInterpreted, Mapping: jit}
	total    = symbolize.Frame{Function: "com.acme.Cart.total", SystemName: "com.acme.Cart.total()J", File: "Cart.java", Line: 42, Kind: symbolize.KindJIT, Mapping: jit, Address: 0x7f00_0000_2000}
	get      = symbolize.Frame{Function: "java.util.HashMap.get", SystemName: "java.util.HashMap.get(Ljava/lang/Object;)Ljava/lang/Object;", File: "HashMap.java", Line: 557, Kind: symbolize.KindJIT, Inlined: true, Mapping: jit, Address: 0x7f00_0000_2000}
	getNode  = symbolize.Frame{Function: "java.util.HashMap.getNode", SystemName: "java.util.HashMap.getNode(Ljava/lang/Object;)Ljava/util/HashMap$Node;", File: "HashMap.java", Line: 568, Kind: symbolize.KindJIT, Inlined: true, Approximate: true, Mapping: jit, Address: 0x7f00_0000_2000}
	fib      = symbolize.Frame{Function: "com.acme.Fib.fib", SystemName: "com.acme.Fib.fib(I)I", File: "Fib.java", Line: 3, Kind: symbolize.KindJIT, Mapping: jit, Address: 0x7f00_0000_3000}
	javaMain = symbolize.Frame{Function: "JavaMain", SystemName: "JavaMain", Kind: symbolize.KindNative, Mapping: unique.Make(java), Address: 0x5500_0000_1234}
	gc       = symbolize.Frame{Function: "G1ParScanThreadState::trim_queue(bool)", SystemName: "_ZN20G1ParScanThreadState10trim_queueEb", Kind: symbolize.KindNative, Mapping: libjvm, Address: 0x7e00_0000_1000}
	nobody   = symbolize.Frame{Function: "[unknown]", Kind: symbolize.KindUnknown, Mapping: libjvm, Address: 0x7e00_0000_2000}
	futex    = symbolize.Frame{Function: "do_futex", SystemName: "do_futex", Kind: symbolize.KindKernel, Mapping: kernel, Address: 0xffff_ffff_8100_0000}
	cut      = symbolize.Frame{Function: "[truncated: frame pointer]", Kind: symbolize.KindMarker}
	execute  = symbolize.Frame{Function: "execute_command", Kind: symbolize.KindNative, Mapping: bashFile, Address: 0x5600_0000_1000}
)

// A sampled stack, innermost frame first.
type sampled struct {
	weight uint64
	frames []symbolize.Frame
}

func contextTree(stacks ...sampled) *cct.Tree[symbolize.Symbol] {
	tree := new(cct.Tree[symbolize.Symbol])
	for _, s := range stacks {
		var stack []symbolize.Symbol
		for _, f := range s.frames {
			stack = append(stack, symbolize.Intern(f))
		}
		tree.Add(stack, s.weight)
	}
	return tree
}

func repeat(f symbolize.Frame, n int, outer ...symbolize.Frame) (frames []symbolize.Frame) {
	for range n {
		frames = append(frames, f)
	}
	return append(frames, outer...)
}

// shop is a window with a bit of everything: a JVM with a worker and a collector thread, and a shell.
func shop() *profile.Profile {
	type stack = []symbolize.Frame
	return &profile.Profile{
		Start:    time.Unix(1_700_000_000, 0),
		Duration: 10 * time.Second,
		Period:   10 * time.Millisecond,
		Event:    "cpu-clock",
		Processes: []*profile.Process{
			{
				PID: 77, Comm: "bash", Service: "bash", Executable: bash,
				Threads: []*profile.Thread{{TID: 77, Name: "bash", Tree: contextTree(
					sampled{30, stack{execute, cut}},
					sampled{1, nil},
				)}},
			},
			{
				PID: 1234, Comm: "java", Runtime: "hotspot", VM: "OpenJDK 64-Bit Server VM 17", Service: "shop.service", Executable: java,
				Notes: []string{"runs without -XX:+DebugNonSafepoints: time in straight-line inlined code is attributed to the method that it was inlined into"},
				Threads: []*profile.Thread{
					{TID: 1240, Name: "http-1", Tree: contextTree(
						sampled{40, stack{getNode, get, total, checkout, callStub, run, javaMain}},
						sampled{25, stack{total, checkout, callStub, run, javaMain}},
						sampled{10, stack{slow, callStub, run, javaMain}},
						sampled{5, stack{futex, checkout, callStub, run, javaMain}},
						sampled{9, repeat(fib, 100, checkout, callStub, run, javaMain)},
						sampled{1, repeat(fib, 50, checkout, callStub, run, javaMain)},
					)},
					{TID: 1250, Name: "GC Thread#0", Tree: contextTree(
						sampled{12, stack{gc, cut}},
						sampled{8, stack{nobody, gc, cut}},
					)},
					{TID: 1251, Name: "GC Thread#1"}, // never ran
				},
			},
		},
		Counts: profile.Counts{
			Attempted: 150, Delivered: 147, Folded: 141,
			Dropped:   map[string]uint64{"ring_full": 3, "no_memory": 0},
			Discarded: map[string]uint64{"malformed": 6},
			Truncated: map[string]uint64{"frame pointer": 50},
			Unknown:   8,
		},
		Comments: []string{"vmprof-agent 0.1.0", "Linux 6.12.1"},
	}
}

func TestSummary(t *testing.T) {
	for _, test := range []struct {
		counts profile.Counts
		want   string
	}{
		{profile.Counts{}, "samples: 0, 0 lost, 0 truncated"},
		{shop().Counts, "samples: 141, 9 lost (malformed 6, ring_full 3), 50 truncated (frame pointer 50), 8 frames without a name"},
		{profile.Counts{Folded: 7, Stale: 2, Dropped: map[string]uint64{"b": 1, "a": 2}, Discarded: map[string]uint64{"a": 4}},
			"samples: 7, 7 lost (a 6, b 1), 0 truncated, 2 stale frames"},
	} {
		if got := sink.Summary(test.counts); got != test.want {
			t.Errorf("Summary = %q, want %q", got, test.want)
		}
	}
}
