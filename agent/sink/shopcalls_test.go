package sink_test

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// javaMethod is a method as call graphs have it: without a line and an address. The signature is behind the name.
func javaMethod(name string) symbolize.Frame {
	f := symbolize.Frame{Function: name, SystemName: name, Kind: symbolize.KindJIT, Mapping: jit}
	for i := range name {
		if name[i] == '(' {
			f.Function = name[:i]
		}
	}
	return f
}

type called struct {
	caller symbolize.Frame
	site   profile.Site
	callee symbolize.Frame
	weight float64
}

func callGraph(list ...called) *profile.Graph {
	g := new(profile.Graph)
	for _, c := range list {
		g.Add(profile.Edge{Caller: symbolize.Intern(c.caller), Site: c.site, Callee: symbolize.Intern(c.callee)}, c.weight)
	}
	return g
}

// Methods that call each other in the shop.
var (
	shopRun   = javaMethod("com.acme.Shop.run()V")
	cartTotal = javaMethod("com.acme.Cart.total()J")
	bookPrice = javaMethod("com.acme.Book.price()J")
	toyPrice  = javaMethod("com.acme.Toy.price()J")
	foodPrice = javaMethod("com.acme.Food.price()J")
	mapGet    = javaMethod("java.util.HashMap.get(Ljava/lang/Object;)Ljava/lang/Object;")
	hashCode  = javaMethod("com.acme.Item.hashCode()I")
	appendInt = javaMethod("java.lang.StringBuilder.append(I)Ljava/lang/StringBuilder;")
	appendStr = javaMethod("java.lang.StringBuilder.append(Ljava/lang/String;)Ljava/lang/StringBuilder;")
	putString = javaMethod("java.lang.AbstractStringBuilder.putStringAt(ILjava/lang/String;)V")
	nowhere   = symbolize.Frame{Function: "[unknown]", Kind: symbolize.KindMarker}
)

// shopCalls is a window of calls: a JVM of which one engine learned in two ways, and a guest in which another sampled.
func shopCalls() *profile.Profile {
	at := func(line, offset int32) profile.Site { return profile.Site{Line: line, Offset: offset} }
	p := &profile.Profile{
		Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond, Event: "cpu-clock",
		Processes: []*profile.Process{
			{
				PID: 1234, Comm: "java", Runtime: "hotspot", Service: "shop.service", Executable: java,
				Calls: []*profile.Calls{
					{Engine: "hotspot", Basis: profile.Estimated, Graph: callGraph(
						called{shopRun, at(10, 4), cartTotal, 1000.5},
						called{cartTotal, at(42, 7), bookPrice, 610.25},
						called{cartTotal, at(42, 7), toyPrice, 300},
						called{cartTotal, at(42, 7), foodPrice, 90},
						called{cartTotal, at(42, 15), mapGet, 500},
						called{shopRun, at(12, 20), nowhere, 1},
					)},
					{Engine: "hotspot", Basis: profile.Inferred, Graph: callGraph(
						called{mapGet, at(557, 2), hashCode, 450},
						called{shopRun, at(11, 9), appendInt, 200},
						called{shopRun, at(11, 12), appendStr, 300},
						called{appendStr, at(0, 5), putString, 0.25},
						called{mapGet, profile.Site{Offset: -1}, hashCode, 50},
					)},
				},
			},
			{
				PID: 77, Comm: "minivm", Executable: bash,
				Calls: []*profile.Calls{{
					Engine: "page", Basis: profile.Sampled, Rate: profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 7, Samples: 32}},
					Graph: callGraph(
						called{javaMethod("main"), at(0, 0), javaMethod("fib"), 40},
						called{javaMethod("fib"), at(3, 11), javaMethod("fib"), 30},
						called{javaMethod("fib"), at(3, 19), javaMethod("fib"), 30},
					),
				}},
			},
		},
		Counts: profile.Counts{}, Comments: []string{"vmprof-agent 0.1.0"},
	}
	estimated := p.Processes[0].Calls
	estimated[0].Intervals, estimated[1].Intervals = within(estimated[0].Graph, 1.2), within(estimated[1].Graph, 2)
	delete(estimated[0].Intervals, profile.Edge{Caller: symbolize.Intern(cartTotal), Site: at(42, 15), Callee: symbolize.Intern(mapGet)}) // exact
	return p
}

// within has each edge of a graph be right to a factor.
func within(g *profile.Graph, factor float64) map[profile.Edge]profile.Interval {
	intervals := make(map[profile.Edge]profile.Interval)
	for e, n := range g.Edges() {
		intervals[e] = profile.Interval{Low: n / factor, High: n * factor}
	}
	return intervals
}

// shopBoth has the samples of shop and the calls of the same JVM.
func shopBoth() *profile.Profile {
	p := shop()
	p.Processes[1].Calls = shopCalls().Processes[0].Calls
	return p
}

// shopExact has every call of a thread in its context, as exact mode counts them.
func shopExact() *profile.Profile {
	line := func(f symbolize.Frame, line int) symbolize.Frame {
		f.Line = line
		return f
	}
	type stack = []symbolize.Frame
	return &profile.Profile{
		Unit: profile.CallCounts, Duration: 10 * time.Second,
		Processes: []*profile.Process{{
			PID: 1234, Comm: "java", Runtime: "hotspot", Executable: java,
			Threads: []*profile.Thread{{TID: 1240, Name: "main", Tree: contextTree(
				sampled{1, stack{shopRun}},
				sampled{1000, stack{cartTotal, line(shopRun, 10)}},
				sampled{610, stack{bookPrice, line(cartTotal, 42), line(shopRun, 10)}},
				sampled{390, stack{toyPrice, line(cartTotal, 42), line(shopRun, 10)}},
				sampled{500, stack{mapGet, line(cartTotal, 42), line(shopRun, 10)}},
				sampled{480, stack{hashCode, line(mapGet, 557), line(cartTotal, 42), line(shopRun, 10)}},
			)}},
		}},
	}
}
