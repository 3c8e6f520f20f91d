package sinktest

import (
	"strings"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Path is the methods of a stack, outermost first, with how often samples found it.
type Path struct {
	Methods string
	Fresh   int // frames that each of them found newly entered
	Times   int
	Weight  uint64 // weight of each sample
}

// OfPaths is a window in which these stacks were sampled.
func OfPaths(paths ...Path) *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	for _, p := range paths {
		var symbols []symbol.Symbol
		for name := range strings.FieldsSeq(p.Methods) {
			symbols = append([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: name, Kind: symbol.KindJIT,
				Mapping: Jit})}, symbols...)
		}
		for range p.Times {
			tree.AddNew(symbols, p.Fresh, p.Weight)
		}
	}
	return &profile.Profile{
		Period: time.Millisecond, Event: "cpu-clock",
		Processes: []*profile.Process{{PID: 1, Comm: "java", Threads: []*profile.Thread{{TID: 1, Tree: tree}}}},
		Counts:    profile.Counts{Folded: tree.Total(), Attempted: tree.Total(), Delivered: tree.Total()},
	}
}

// Mappings of the shop.
var (
	Java = symbol.Mapping{File: "/usr/lib/jvm/java-17/bin/java", BuildID: "aa11", Start: 0x5500_0000_0000,
		Limit: 0x5500_0000_4000}
	Bash   = symbol.Mapping{File: "/usr/bin/bash", BuildID: "cc33", Start: 0x5600_0000_0000, Limit: 0x5600_0010_0000}
	Jit    = unique.Make(symbol.Mapping{File: "[jit:HotSpot]", Start: 0x7f00_0000_0000, Limit: 0x7f00_1000_0000})
	Libjvm = unique.Make(symbol.Mapping{File: "/usr/lib/jvm/java-17/lib/server/libjvm.so", BuildID: "bb22",
		Start: 0x7e00_0000_0000, Limit: 0x7e00_0100_0000, Offset: 0x1000})
	Kernel   = unique.Make(symbol.Mapping{File: "[kernel]"})
	BashFile = unique.Make(Bash)
)

// Frames of the shop.
var (
	Run = symbol.Frame{Function: "java.lang.Thread.run", SystemName: "java.lang.Thread.run()V",
		File: "Thread.java", Line: 840, Kind: symbol.KindInterpreted, Mapping: Jit}
	CallStub = symbol.Frame{Function: "StubRoutines (call_stub)", Kind: symbol.KindStub, Mapping: Jit,
		Address: 0x7f00_0000_0100}
	Checkout = symbol.Frame{Function: "com.acme.Shop.checkout", SystemName: "com.acme.Shop.checkout(Lcom/acme/Cart;)J",
		File: "Shop.java", Line: 10, Kind: symbol.KindJIT, Mapping: Jit, Address: 0x7f00_0000_1000}
	Slow = symbol.Frame{Function: "com.acme.Shop.checkout", SystemName: "com.acme.Shop.checkout(Lcom/acme/Cart;)J",
		File: "Shop.java", Line: 12, Kind: symbol.KindInterpreted, Mapping: Jit}
	Total = symbol.Frame{Function: "com.acme.Cart.total", SystemName: "com.acme.Cart.total()J", File: "Cart.java",
		Line: 42, Kind: symbol.KindJIT, Mapping: Jit, Address: 0x7f00_0000_2000}
	Get = symbol.Frame{Function: "java.util.HashMap.get",
		SystemName: "java.util.HashMap.get(Ljava/lang/Object;)Ljava/lang/Object;", File: "HashMap.java", Line: 557,
		Kind: symbol.KindJIT, Inlined: true, Mapping: Jit, Address: 0x7f00_0000_2000}
	GetNode = symbol.Frame{Function: "java.util.HashMap.getNode",
		SystemName: "java.util.HashMap.getNode(Ljava/lang/Object;)Ljava/util/HashMap$Node;", File: "HashMap.java",
		Line: 568, Kind: symbol.KindJIT, Inlined: true, Approximate: true, Mapping: Jit, Address: 0x7f00_0000_2000}
	Fib = symbol.Frame{Function: "com.acme.Fib.fib", SystemName: "com.acme.Fib.fib(I)I", File: "Fib.java", Line: 3,
		Kind: symbol.KindJIT, Mapping: Jit, Address: 0x7f00_0000_3000}
	JavaMain = symbol.Frame{Function: "JavaMain", SystemName: "JavaMain", Kind: symbol.KindNative,
		Mapping: unique.Make(Java), Address: 0x5500_0000_1234}
	Gc = symbol.Frame{Function: "G1ParScanThreadState::trim_queue(bool)",
		SystemName: "_ZN20G1ParScanThreadState10trim_queueEb", Kind: symbol.KindNative, Mapping: Libjvm,
		Address: 0x7e00_0000_1000}
	Nobody = symbol.Frame{Function: "[unknown]", Kind: symbol.KindUnknown, Mapping: Libjvm, Address: 0x7e00_0000_2000}
	Futex  = symbol.Frame{Function: "do_futex", SystemName: "do_futex", Kind: symbol.KindKernel, Mapping: Kernel,
		Address: 0xffff_ffff_8100_0000}
	Cut     = symbol.Frame{Function: "[truncated: frame pointer]", Kind: symbol.KindMarker}
	Execute = symbol.Frame{Function: "execute_command", Kind: symbol.KindNative, Mapping: BashFile,
		Address: 0x5600_0000_1000}
)

// A Sampled stack, innermost frame first.
type Sampled struct {
	Weight uint64
	Frames []symbol.Frame
}

func ContextTree(stacks ...Sampled) *cct.Tree[symbol.Symbol] {
	tree := new(cct.Tree[symbol.Symbol])
	for _, s := range stacks {
		var stack []symbol.Symbol
		for _, f := range s.Frames {
			stack = append(stack, symbol.Intern(f))
		}
		tree.Add(stack, s.Weight)
	}
	return tree
}

func Repeat(f symbol.Frame, n int, outer ...symbol.Frame) (frames []symbol.Frame) {
	for range n {
		frames = append(frames, f)
	}
	return append(frames, outer...)
}

// Shop is a window with a bit of everything: a JVM with a worker and a collector thread, and a
// shell.
func Shop() *profile.Profile {
	type stack = []symbol.Frame
	return &profile.Profile{
		Start:    time.Unix(1_700_000_000, 0),
		Duration: 10 * time.Second,
		Period:   10 * time.Millisecond,
		Event:    "cpu-clock",
		Processes: []*profile.Process{
			{
				PID: 77, Comm: "bash", Service: "bash", Executable: Bash,
				Threads: []*profile.Thread{{TID: 77, Name: "bash", Tree: ContextTree(
					Sampled{30, stack{Execute, Cut}},
					Sampled{1, nil},
				)}},
			},
			{
				PID: 1234, Comm: "java", Runtime: "hotspot", VM: "OpenJDK 64-Bit Server VM 17", Service: "shop.service",
				Executable: Java,
				Notes: []string{"runs without -XX:+DebugNonSafepoints: time in straight-line inlined code is " +
					"attributed to the method that it was inlined into"},
				Threads: []*profile.Thread{
					{TID: 1240, Name: "http-1", Tree: ContextTree(
						Sampled{40, stack{GetNode, Get, Total, Checkout, CallStub, Run, JavaMain}},
						Sampled{25, stack{Total, Checkout, CallStub, Run, JavaMain}},
						Sampled{10, stack{Slow, CallStub, Run, JavaMain}},
						Sampled{5, stack{Futex, Checkout, CallStub, Run, JavaMain}},
						Sampled{9, Repeat(Fib, 100, Checkout, CallStub, Run, JavaMain)},
						Sampled{1, Repeat(Fib, 50, Checkout, CallStub, Run, JavaMain)},
					)},
					{TID: 1250, Name: "GC Thread#0", Tree: ContextTree(
						Sampled{12, stack{Gc, Cut}},
						Sampled{8, stack{Nobody, Gc, Cut}},
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
