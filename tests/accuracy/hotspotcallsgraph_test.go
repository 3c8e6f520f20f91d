package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
)

// javaCalls parses edges in the form of the tests: "caller site callee", or "caller callee" without
// a site.
func javaCalls(calls map[string]float64) *javaGraph {
	g := &javaGraph{}
	for text, n := range calls {
		words := strings.Fields(text)
		e := javaEdge{Caller: words[0], Site: noSite, Callee: words[len(words)-1]}
		if len(words) == 3 {
			e.Site = int32(words[1][0] - '0')
		}
		g.Add(e, n)
	}
	return g
}

func TestComparableName(t *testing.T) {
	for name, want := range map[string]string{
		"a.B.c(I)V":                                               "a.B.c(I)V",
		"a.B$$Lambda$14/0x0000000840066440.c()V":                  "a.B$$Lambda.c()V",
		"a.B$$Lambda/0x0000000840066440.c()V":                     "a.B$$Lambda.c()V",
		"java.lang.invoke.LambdaForm$MH/0x000000084006.invoke()V": "java.lang.invoke.LambdaForm$MH.invoke()V",
		"[unknown]": notJava,
		"[VM]":      notJava,
	} {
		if got := comparableName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// A stack is "kind:inlined,method kind:method …", innermost first.
func stackOf(text string) *pprof.Sample {
	mappings := map[string]string{"j": "[jit:HotSpot]", "i": "[interpreter:HotSpot]", "s": "[stub:HotSpot]",
		"n": "/lib/libjvm.so"}
	s := &pprof.Sample{Value: []int64{10}}
	for _, frame := range strings.Fields(text) {
		kind, methods, _ := strings.Cut(frame, ":")
		l := &pprof.Location{Mapping: &pprof.Mapping{File: mappings[kind]}}
		for _, m := range strings.Split(methods, ",") {
			l.Line = append(l.Line, pprof.Line{Function: &pprof.Function{Name: m, SystemName: m}})
		}
		s.Location = append(s.Location, l)
	}
	return s
}

func TestSampledEdges(t *testing.T) {
	for _, tt := range []struct{ stack, physical, logical string }{
		{stack: "j:a j:b j:c", physical: "b a", logical: "b a"},
		{stack: "j:a,b i:c", physical: "c b", logical: "b a"},
		{stack: "j:a j:b,c", physical: "b a", logical: "b a"},
		{stack: "n:memcpy s:arraycopy j:a,b j:c", physical: "c b", logical: "b a"},
		{stack: "j:a s:call_stub", physical: notJava + " a", logical: notJava + " a"},
		{stack: "i:a", physical: notJava + " a", logical: notJava + " a"},
		{stack: "n:read s:x"},
	} {
		p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples"}},
			Sample: []*pprof.Sample{stackOf(tt.stack)}}
		for _, kind := range []struct {
			logical bool
			want    string
		}{{false, tt.physical}, {true, tt.logical}} {
			want := &javaGraph{}
			if kind.want != "" {
				want = javaCalls(map[string]float64{kind.want: 10})
			}
			got := sampledEdges(p, kind.logical)
			if !maps.Equal(maps.Collect(got.Edges()), maps.Collect(want.Edges())) {
				t.Errorf("%s, logical %v: got %v, want %v", tt.stack, kind.logical, maps.Collect(got.Edges()),
					kind.want)
			}
		}
	}
}

func TestEstimatedCalls(t *testing.T) {
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "calls", Unit: "count"}}}
	for basis, stack := range map[string]string{"estimated": "j:b j:a", "counted": "j:c j:a", "inferred": "j:d j:a"} {
		s := stackOf(stack)
		s.Label = map[string][]string{"engine": {"hotspot"}, "basis": {basis}}
		p.Sample = append(p.Sample, s)
	}
	for logical, want := range map[bool][]string{false: {"b", "c"}, true: {"b", "c", "d"}} {
		g, err := estimatedCalls(p, logical)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(g.Callees())); !slices.Equal(got, want) {
			t.Errorf("logical %v: got calls of %v, want %v", logical, got, want)
		}
	}
	if _, err := estimatedCalls(&pprof.Profile{SampleType: p.SampleType}, false); err == nil {
		t.Error("a profile without calls has some")
	}
}

func TestOnlyOf(t *testing.T) {
	g := javaCalls(map[string]float64{"a b": 1, "c b": 2, "a d": 1})
	part, share := onlyOf(g, map[string]bool{"b": true})
	if part.Len() != 2 || part.Total() != 3 || share != 0.75 {
		t.Errorf("got %d edges, %v calls, %v of all", part.Len(), part.Total(), share)
	}
	if _, share := onlyOf(&javaGraph{}, nil); share != 0 {
		t.Errorf("nothing is %v of nothing", share)
	}
}

func TestWithRates(t *testing.T) {
	seen := javaCalls(map[string]float64{"a b": 1, "c b": 3, "a d": 100})
	truth := javaCalls(map[string]float64{"a b": 40, "a e": 5})
	want := javaCalls(map[string]float64{"a b": 10, "c b": 30, "a d": 0})
	if got := withRates(seen, truth); !maps.Equal(maps.Collect(got.Edges()), maps.Collect(want.Edges())) {
		t.Errorf("got %v", maps.Collect(got.Edges()))
	}
}

func TestDifferences(t *testing.T) {
	found := javaCalls(map[string]float64{"a b": 75, "a c": 25})
	truth := javaCalls(map[string]float64{"a b": 4, "a c": 2, "a d": 2})
	got := differences(found, truth, 2)
	if len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), " 0.00% for  25.00%  a -> d") {
		t.Errorf("got %q", got)
	}
}
