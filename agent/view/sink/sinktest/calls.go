package sinktest

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// JavaMethod is a method as call graphs have it: without a line and an address. The signature is
// behind the name.
func JavaMethod(name string) symbol.Frame {
	f := symbol.Frame{Function: name, SystemName: name, Kind: symbol.KindJIT, Mapping: Jit}
	for i := range name {
		if name[i] == '(' {
			f.Function = name[:i]
		}
	}
	return f
}

type Called struct {
	Caller symbol.Frame
	Site   profile.Site
	Callee symbol.Frame
	Weight float64
}

func CallGraph(list ...Called) *profile.Graph {
	g := new(profile.Graph)
	for _, c := range list {
		g.Add(profile.Edge{Caller: symbol.Intern(c.Caller), Site: c.Site, Callee: symbol.Intern(c.Callee)}, c.Weight)
	}
	return g
}

// Methods that call each other in the shop.
var (
	ShopRun   = JavaMethod("com.acme.Shop.run()V")
	CartTotal = JavaMethod("com.acme.Cart.total()J")
	BookPrice = JavaMethod("com.acme.Book.price()J")
	ToyPrice  = JavaMethod("com.acme.Toy.price()J")
	FoodPrice = JavaMethod("com.acme.Food.price()J")
	MapGet    = JavaMethod("java.util.HashMap.get(Ljava/lang/Object;)Ljava/lang/Object;")
	HashCode  = JavaMethod("com.acme.Item.hashCode()I")
	AppendInt = JavaMethod("java.lang.StringBuilder.append(I)Ljava/lang/StringBuilder;")
	AppendStr = JavaMethod("java.lang.StringBuilder.append(Ljava/lang/String;)Ljava/lang/StringBuilder;")
	PutString = JavaMethod("java.lang.AbstractStringBuilder.putStringAt(ILjava/lang/String;)V")
	Nowhere   = symbol.Frame{Function: "[unknown]", Kind: symbol.KindMarker}
)

// ShopCalls is a window of calls: a JVM whose calls one engine recorded on two bases, and a process
// in which another engine sampled.
func ShopCalls() *profile.Profile {
	at := func(line, offset int32) profile.Site { return profile.Site{Line: line, Offset: offset} }
	p := &profile.Profile{
		Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond,
		Event: "cpu-clock",
		Processes: []*profile.Process{
			{
				PID: 1234, Comm: "java", Runtime: "hotspot", Service: "shop.service", Executable: Java,
				Calls: []*profile.Calls{
					{Engine: "hotspot", Basis: profile.Estimated, Graph: CallGraph(
						Called{ShopRun, at(10, 4), CartTotal, 1000.5},
						Called{CartTotal, at(42, 7), BookPrice, 610.25},
						Called{CartTotal, at(42, 7), ToyPrice, 300},
						Called{CartTotal, at(42, 7), FoodPrice, 90},
						Called{CartTotal, at(42, 15), MapGet, 500},
						Called{ShopRun, at(12, 20), Nowhere, 1},
					)},
					{Engine: "hotspot", Basis: profile.Inferred, Graph: CallGraph(
						Called{MapGet, at(557, 2), HashCode, 450},
						Called{ShopRun, at(11, 9), AppendInt, 200},
						Called{ShopRun, at(11, 12), AppendStr, 300},
						Called{AppendStr, at(0, 5), PutString, 0.25},
						Called{MapGet, profile.Site{Offset: -1}, HashCode, 50},
					)},
				},
			},
			{
				PID: 77, Comm: "minivm", Executable: Bash,
				Calls: []*profile.Calls{{
					Engine: "page", Basis: profile.Sampled, Rate: profile.Rate{Hz: 100,
						Burst: profile.Burst{Stride: 7, Samples: 32}},
					Graph: CallGraph(
						Called{JavaMethod("main"), at(0, 0), JavaMethod("fib"), 40},
						Called{JavaMethod("fib"), at(3, 11), JavaMethod("fib"), 30},
						Called{JavaMethod("fib"), at(3, 19), JavaMethod("fib"), 30},
					),
				}},
			},
		},
		Counts: profile.Counts{}, Comments: []string{"vmprof-agent 0.1.0"},
	}
	estimated := p.Processes[0].Calls
	estimated[0].Intervals, estimated[1].Intervals = Within(estimated[0].Graph, 1.2), Within(estimated[1].Graph, 2)
	// exact
	delete(estimated[0].Intervals, profile.Edge{Caller: symbol.Intern(CartTotal), Site: at(42, 15),
		Callee: symbol.Intern(MapGet)})
	return p
}

// Within has each edge of a graph be right to a factor.
func Within(g *profile.Graph, factor float64) map[profile.Edge]profile.Interval {
	intervals := make(map[profile.Edge]profile.Interval)
	for e, n := range g.Edges() {
		intervals[e] = profile.Interval{Low: n / factor, High: n * factor}
	}
	return intervals
}

// ShopBoth has the samples of shop and the calls of the same JVM.
func ShopBoth() *profile.Profile {
	p := Shop()
	p.Processes[1].Calls = ShopCalls().Processes[0].Calls
	return p
}

// ShopCounted has calls of a method that record --count counted, of two processes: all of the time,
// and in slices of it.
func ShopCounted() *profile.Profile {
	edge := profile.Edge{
		Caller: symbol.Intern(symbol.Frame{Function: "[unknown caller]", Kind: symbol.KindMarker}),
		Site:   profile.Site{Offset: -1},
		Callee: symbol.Intern(symbol.Frame{Function: "com.acme.Cart.total", Kind: symbol.KindJIT}),
	}
	p := &profile.Profile{Duration: 10 * time.Second}
	for pid, basis := range []profile.Basis{profile.Counted, profile.Estimated} {
		calls := &profile.Calls{Engine: stored.EngineCount, Basis: basis, Graph: new(profile.Graph)}
		calls.Graph.Add(edge, 1200)
		if basis == profile.Estimated {
			calls.Intervals = map[profile.Edge]profile.Interval{edge: {Low: 1100, High: 1310}}
		}
		p.Processes = append(p.Processes, &profile.Process{PID: 1234 + pid, Comm: "java", Runtime: "hotspot",
			Executable: Java, Calls: []*profile.Calls{calls}})
	}
	return p
}

// ShopExact has every call of a thread in its context, as exact mode counts them.
func ShopExact() *profile.Profile {
	line := func(f symbol.Frame, line int) symbol.Frame {
		f.Line = line
		return f
	}
	type stack = []symbol.Frame
	return &profile.Profile{
		Unit: profile.CallCounts, Duration: 10 * time.Second,
		Processes: []*profile.Process{{
			PID: 1234, Comm: "java", Runtime: "hotspot", Executable: Java,
			Threads: []*profile.Thread{{TID: 1240, Name: "main", Tree: ContextTree(
				Sampled{1, stack{ShopRun}},
				Sampled{1000, stack{CartTotal, line(ShopRun, 10)}},
				Sampled{610, stack{BookPrice, line(CartTotal, 42), line(ShopRun, 10)}},
				Sampled{390, stack{ToyPrice, line(CartTotal, 42), line(ShopRun, 10)}},
				Sampled{500, stack{MapGet, line(CartTotal, 42), line(ShopRun, 10)}},
				Sampled{480, stack{HashCode, line(MapGet, 557), line(CartTotal, 42), line(ShopRun, 10)}},
			)}},
		}},
	}
}

// CountedWall is a window of wall time with so many calls of the shop's checkout, as record --count
// has them.
func CountedWall(calls float64) *profile.Profile {
	p := Only(profile.Wall)
	graph := new(profile.Graph)
	graph.Add(profile.Edge{
		Caller: symbol.Intern(symbol.Frame{Function: "[unknown caller]", Kind: symbol.KindMarker}),
		Site:   profile.Site{Offset: -1},
		Callee: symbol.Intern(symbol.Frame{Function: Checkout.Function, Kind: symbol.KindJIT}),
	}, calls)
	p.Processes[1].Calls = []*profile.Calls{{Engine: stored.EngineCount, Basis: profile.Counted, Graph: graph}}
	return p
}
