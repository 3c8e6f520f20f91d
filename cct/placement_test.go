package cct_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// placed formats a placement: fit and basis, then each candidate with its share, the heaviest
// first.
func placed(c *chain, l chainLink, p placement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v by %v", p.Fit, p.Basis)
	for _, to := range p.Candidates {
		fmt.Fprintf(&b, " | %.4g %s", to.Share, lines(c.Stack(nil, l, to)))
	}
	return b.String()
}

func expectPlaces(t *testing.T, c *chain, want map[string]string) {
	t.Helper()
	for text, want := range want {
		l := linkOf(text)
		if got := placed(c, l, c.Place(l)); got != want {
			t.Errorf("%q is %s\n\twant %s", text, got, want)
		}
	}
}

// Figure 6 from its table alone, as the paper draws it: D at 90 was called by B only, so E at 100
// was called via B.
func TestPlaceFigure6FromPairs(t *testing.T) {
	expectPlaces(t, called(chainFigure6), map[string]string{
		"D@90 E@100": "unique by pairs | 1 A@10 B@50 D@90 E@100",
		"C@40 E@50":  "unique by pairs | 1 A@10 C@40 E@50",
		"B@50 D@90":  "unique by pairs | 1 A@10 B@50 D@90",
		"C@40 D@80":  "unique by pairs | 1 A@10 C@40 D@80",
		"D@80 X@99":  "unique by pairs | 1 A@10 C@40 D@80 X@99",
		"A@10 B@50":  "unplaced by nothing", // no more than the link itself
		// By {method, depth}, as for the events in section 6.2.
		"E@100": "fitted by leaf | 1 A@10 B@50 D@90 E@100",
		// Its example: E at 40 is E at 50 after the return to C at 40.
		"E@40": "fitted by neighbour | 1 A@10 C@40 E@40",
		"D@40": "fitted by neighbour | 1 A@10 C@40 D@40",
		// D with the registers of E, which it called.
		"D@100": "fitted by neighbour | 1 A@10 B@50 D@100",
		"E@60":  "unplaced by nothing",
	})
}

func TestPlaceFigure6(t *testing.T) {
	expectPlaces(t, walked(chainWalks6), map[string]string{
		"D@90 E@100": "unique by link | 1 A@10 B@50 D@90 E@100",
		"C@40 E@50":  "unique by link | 1 A@10 C@40 E@50",
		"A@10 B@50":  "unique by link | 1 A@10 B@50",
		"D@80 E@90":  "unique by caller | 1 A@10 C@40 D@80 E@90",
		"D@90 X@100": "unique by caller | 1 A@10 B@50 D@90 X@100",
		"E@100":      "fitted by leaf | 1 A@10 B@50 D@90 E@100",
		"E@40":       "fitted by neighbour | 1 A@10 C@40 E@40",
		"D@100":      "fitted by neighbour | 1 A@10 B@50 D@100",
		// B at 10 may be B after its return to A; so may C.
		"B@10": "fitted by neighbour | 1 A@10 B@10",
		// A with the registers of a callee: one context, though it makes two calls.
		"A@40": "fitted by neighbour | 1 A@40",
		// Being at the nearest depth is not evidence.
		"D@91 E@101": "unplaced by nothing",
		"E@101":      "unplaced by nothing",
		"X@40":       "unplaced by nothing",
	})
}

// Figure 7: the caller of D is part of a link, but the caller of D's caller is not.
func TestPlaceFigure7(t *testing.T) {
	expectPlaces(t, walked(chainWalks7a), map[string]string{
		"D@90 E@100": "ambiguous by link | 0.5714 A@10 F@50 D@90 E@100 | 0.4286 A@10 B@50 D@90 E@100", // 40:30
		"B@50 D@90":  "unique by link | 1 A@10 B@50 D@90",
		"F@50 D@90":  "unique by link | 1 A@10 F@50 D@90",
		"D@90":       "fitted by leaf | 0.6 A@10 F@50 D@90 | 0.4 A@10 B@50 D@90",                      // 20+40:10+30
		"D@90 X@100": "ambiguous by caller | 0.6 A@10 F@50 D@90 X@100 | 0.4 A@10 B@50 D@90 X@100",     // as hot as D is
		"E@90":       "fitted by neighbour | 0.5714 A@10 F@50 D@90 E@90 | 0.4286 A@10 B@50 D@90 E@90", // back in D
		"D@100":      "fitted by neighbour | 0.5714 A@10 F@50 D@100 | 0.4286 A@10 B@50 D@100",         // still in E
	})
	expectPlaces(t, walked(chainWalks7b), map[string]string{
		"D@90 E@100": "ambiguous by link | 0.75 A@10 C@40 B@80 D@90 E@100 | 0.25 A@10 B@50 C@80 D@90 E@100",
		"B@80 D@90":  "unique by link | 1 A@10 C@40 B@80 D@90",
		"C@80 D@90":  "unique by link | 1 A@10 B@50 C@80 D@90",
	})
}

// For how many levels all contexts agree, counted from the leaf, and for how many with the paper's
// own key.
func TestAgreement(t *testing.T) {
	type agreement = cct.Agreement
	sites := map[string]uint64{"A@10 B:1@50 D@90 E@100": 1, "A@10 B:2@50 D@90 E@100": 1}
	for _, test := range []struct {
		name             string
		chain            *chain
		link             string
		callers, methods agreement
		byDepth          agreement // methods
	}{
		{"figure 6", walked(chainWalks6), "D@90 E@100", agreement{3, true}, agreement{3, true}, agreement{3, true}},
		{"figure 6, pairs", called(chainFigure6), "D@90 E@100", agreement{3, false}, agreement{3, false},
			agreement{3, false}},
		{"figure 7a", walked(chainWalks7a), "D@90 E@100", agreement{1, false}, agreement{1, false},
			agreement{1, false}},
		{"figure 7a", walked(chainWalks7a), "B@50 D@90", agreement{2, true}, agreement{2, true}, agreement{0, false}},
		{"figure 7b", walked(chainWalks7b), "D@90 E@100", agreement{1, false}, agreement{1, false},
			agreement{1, false}},
		{"sites differ", walked(sites), "D@90 E@100", agreement{1, false}, agreement{3, true}, agreement{3, true}},
		{"outermost", walked(chainWalks6), "A@10", agreement{0, true}, agreement{0, true}, agreement{0, true}},
		{"nothing known", walked(chainWalks6), "X@50 E@70", agreement{1, false}, agreement{1, false},
			agreement{0, false}},
		{"nothing known", walked(chainWalks6), "E@70", agreement{0, false}, agreement{0, false}, agreement{0, false}},
		// One ends where the other continues.
		{"one is part of the other", walked(map[string]uint64{"B@50 D@90 E@100": 1, "A@10 B@50 D@90 E@100": 1}),
			"D@90 E@100",
			agreement{2, false}, agreement{2, false}, agreement{2, false}},
		{"depths differ only", walked(map[string]uint64{"A@10 B@50 D@90 E@100": 1, "A@12 B@50 D@90 E@100": 1}),
			"D@90 E@100",
			agreement{3, true}, agreement{3, true}, agreement{3, true}},
	} {
		l := linkOf(test.link)
		p := test.chain.Place(l)
		if p.Callers != test.callers || p.Methods != test.methods {
			t.Errorf("%s: of %q Callers, Methods = %v, %v, want %v, %v", test.name, test.link, p.Callers, p.Methods,
				test.callers, test.methods)
		}
		if callers, methods := test.chain.ByDepth(l.Leaf); methods != test.byDepth || callers.Levels > methods.Levels {
			t.Errorf("%s: ByDepth of %q = %v, %v, want methods %v", test.name, test.link, callers, methods,
				test.byDepth)
		}
	}
}

// Samples are divided by how hot contexts are: the most specific evidence counts.
func TestPlaceDividesByHotness(t *testing.T) {
	walks := func(b, f uint64, more ...string) *chain {
		c := walked(map[string]uint64{"A@10 B@50 D@90 E@100": b, "A@10 F@50 D@90 E@100": f})
		for _, text := range more {
			c.Walk(activations(text), 1000)
		}
		return c
	}
	bEdge, fEdge := linkOf("B@50 D@90"), linkOf("F@50 D@90")
	calls := func(c *chain, b, f uint64) *chain {
		c.Call(bEdge, b)
		c.Call(fEdge, f)
		return c
	}
	for name, test := range map[string]struct {
		chain *chain
		link  string
		f     float64 // the share of the context through F
	}{
		"10:80":            {walks(10, 80), "D@90 E@100", 80. / 90},
		"no weight at all": {walks(0, 0), "D@90 E@100", 1. / 2},
		"calls alone":      {calls(walks(0, 0), 10, 80), "D@90 E@100", 80. / 90},
		"calls count as one sample of the leaf, which is one of the callers, too, and of both": {
			calls(walks(1, 0), 1, 3), "D@90 E@100", 3. / 4 / 2 / 2 / 2},
		"another leaf is hot elsewhere": {walks(1, 1, "A@10 B@50 D@90 X@100"), "D@90 E@100",
			(1 + (1+1./1002)/3) / 3}, // callers 1001:1, through E and E on top 1:1
		"a hot callee is not a hot leaf": {walks(1, 1, "A@10 B@50 D@90 E@100 X@110"), "D@90 E@100",
			(1 + (1+1./1002)/1003) / 3}, // callers and through E 1001:1, E on top 1:1
		"all of the caller":                  {walks(10, 80), "D@90 Y@100", 80. / 90},
		"all of the caller, not walked":      {walks(0, 0), "D@90 Y@100", 1. / 2},
		"all of the caller, calls":           {calls(walks(0, 0), 10, 80), "D@90 Y@100", 80. / 90},
		"all of the caller, calls and walks": {calls(walks(4, 5), 1, 3), "D@90 Y@100", (5 + 3./4) / 10},
	} {
		l := linkOf(test.link)
		p := test.chain.Place(l)
		if p.Fit != cct.Ambiguous || len(p.Candidates) != 2 {
			t.Errorf("%s: %s", name, placed(test.chain, l, p))
			continue
		}
		for _, to := range p.Candidates {
			share := test.f
			if strings.Contains(lines(test.chain.Stack(nil, l, to)), "B@50") {
				share = 1 - share
			}
			if math.Abs(to.Share-share) > 1e-12 {
				t.Errorf("%s: %s, want %v through F", name, placed(test.chain, l, p), test.f)
			}
		}
	}
}

// The calls of a link are divided among all contexts that end with it.
func TestPlaceDividesCalls(t *testing.T) {
	for name, test := range map[string]struct {
		weight uint64
		link   string
		want   string
	}{
		"not walked, by link":   {0, "D@90 E@100", "0.8000 0.1000 0.1000"},
		"not walked, by caller": {0, "D@90 X@100", "0.8000 0.1000 0.1000"},
		// Calls 8:1:1 count as one sample, next to three of callers, then of calls, then of leaves.
		"walked, by link": {1, "D@90 E@100", "0.3406 0.3297 0.3297"},
		// Links 1:2, blended with the evidence of calls, and evenly below.
		"walked, by caller": {1, "D@90 X@100", "0.4500 0.2750 0.2750"},
	} {
		var c chain
		for _, callers := range []string{"A:1@10 B@50", "A:2@10 B@50", "A@10 F@50"} {
			c.Walk(activations(callers+" D@90 E@100"), test.weight)
		}
		c.Call(linkOf("B@50 D@90"), 20)
		c.Call(linkOf("F@50 D@90"), 80)
		var shares []string
		for _, to := range c.Place(linkOf(test.link)).Candidates {
			shares = append(shares, fmt.Sprintf("%.4f", to.Share))
		}
		if got := strings.Join(shares, " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// A leaf that was observed in some contexts of its caller belongs there, however hot the others
// are. A context that is twice below its caller does not count twice.
func TestPlacePrefersContextsWithTheLeaf(t *testing.T) {
	c := walked(map[string]uint64{
		"A@10 B:1@50 D:7@90 E@100": 1,
		"A@10 B:2@50 D:7@90 E@100": 3,
		"A@10 F@50 D:7@90 X@100":   1000,
		"A@10 F@50 D:8@90 E@100":   1000, // from another site
	})
	expectPlaces(t, c, map[string]string{
		"D:7@90 E@100": "ambiguous by link | 0.75 A@10 B:2@50 D:7@90 E@100 | 0.25 A@10 B:1@50 D:7@90 E@100",
		"D:8@90 E@100": "unique by link | 1 A@10 F@50 D:8@90 E@100",
		// The site in the caller does not decide who called it.
		"D:9@90 X@100": "ambiguous by caller | 0.998 A@10 F@50 D:9@90 X@100 | 0.001497 A@10 B:2@50 D:9@90 X@100 | " +
			"0.000499 A@10 B:1@50 D:9@90 X@100",
	})
}

// Recursion keeps its whole context: each level is another depth.
func TestPlaceRecursion(t *testing.T) {
	c := walked(map[string]uint64{
		"main@8 fib:1@24 fib:1@40 fib:2@56 fib@72":  5,
		"main@8 fib:1@24 fib:2@40 fib@56":           3,
		"main@8 ping@32 pong@48 ping@72 pong@88":    1,
		"main@8 pong@32 ping@56 pong@72 ping@96":    1,
		"main@8 ping@32 pong@48 ping@72 x@88":       1,
		"main@8 fib:1@24 fib:2@40 fib:2@56 fib@72":  1,
		"main@8 fib:1@24 fib:2@40 fib:2@56 leaf@72": 1,
	})
	expectPlaces(t, c, map[string]string{
		"fib:2@40 fib@56": "unique by link | 1 main@8 fib:1@24 fib:2@40 fib@56",
		"fib:2@56 fib@72": "ambiguous by link | 0.8265 main@8 fib:1@24 fib:1@40 fib:2@56 fib@72 | 0.1735 main@8 " +
			"fib:1@24 fib:2@40 fib:2@56 fib@72",
		"fib:2@56 leaf@72": "unique by link | 1 main@8 fib:1@24 fib:2@40 fib:2@56 leaf@72",
		"fib:1@24 fib@40":  "unique by link | 1 main@8 fib:1@24 fib@40",
		"ping@72 pong@88":  "unique by link | 1 main@8 ping@32 pong@48 ping@72 pong@88",
		"ping@56 pong@72":  "unique by link | 1 main@8 pong@32 ping@56 pong@72",
		// A level that no walk has reached is not inferred from the known ones.
		"fib:1@88 fib@104": "unplaced by nothing",
	})
}

// Links fill in where there were no walks, up to a place where there were.
func TestPlaceChainsUpToWalks(t *testing.T) {
	c := walked(map[string]uint64{"A@10 B:3@50 D@90": 10, "A@10 F@50 D@90": 30})
	for text, calls := range map[string]uint64{
		"D:5@90 G@120":  1, // G and H were never walked
		"G:6@120 H@90":  9, // deeper than its callee: must not be followed forever
		"G:6@120 H@150": 3,
		"K@100 H@150":   1, // and nothing is known above K
	} {
		c.Call(linkOf(text), calls)
	}
	expectPlaces(t, c, map[string]string{
		"H@150 leaf@160": "ambiguous by pairs | 0.5625 A@10 F@50 D:5@90 G:6@120 H@150 leaf@160 | 0.25 K@100 H@150 " +
			"leaf@160" +
			" | 0.1875 A@10 B:3@50 D:5@90 G:6@120 H@150 leaf@160",
		"G@120 H@150":  "ambiguous by pairs | 0.75 A@10 F@50 D:5@90 G@120 H@150 | 0.25 A@10 B:3@50 D:5@90 G@120 H@150",
		"K@100 H@150":  "unplaced by nothing",
		"H@90 leaf@99": "unique by pairs | 1 G:6@120 H@90 leaf@99",
	})
	if p := c.Place(linkOf("H@150 leaf@160")); p.Callers != (cct.Agreement{Levels: 1}) {
		t.Errorf("of different callers %+v agrees", p.Callers)
	}
	// A link that shows that walks have missed something at this place.
	c.Call(linkOf("X@50 D@90"), 1)
	expectPlaces(t, c, map[string]string{
		// 40 walks through D, and links count as one sample.
		"D@90 leaf@99": "ambiguous by pairs | 0.7317 A@10 F@50 D@90 leaf@99 | 0.2439 A@10 B:3@50 D@90 leaf@99 | " +
			"0.02439 X@50 D@90 leaf@99",
	})
}

// Two paths that meet again are two, and each keeps its weight.
func TestPlaceChainsOverSeveralWays(t *testing.T) {
	c := walked(map[string]uint64{"A@10 B@50 D@90 P@120": 1, "A@10 B@50 D@90 Q@120": 1})
	for text, calls := range map[string]uint64{
		"P@120 Z@150": 3, "Q@120 Z@150": 1, "Z@150 W@180": 1, "W@180 V@210": 1, "V@210 U@240": 1,
		"L@20 K@40": 0, "M@20 K@40": 0, "N@10 L@20": 0, "K@40 G@60": 5, "F@40 G@60": 5, // no weight above K
	} {
		c.Call(linkOf(text), calls)
	}
	expectPlaces(t, c, map[string]string{
		"Z@150 leaf@160": "ambiguous by pairs | 0.75 A@10 B@50 D@90 P@120 Z@150 leaf@160 | 0.25 A@10 B@50 D@90 Q@120 " +
			"Z@150 leaf@160",
		"U@240 leaf@250": "ambiguous by pairs | 0.75 A@10 B@50 D@90 P@120 Z@150 W@180 V@210 U@240 leaf@250" +
			" | 0.25 A@10 B@50 D@90 Q@120 Z@150 W@180 V@210 U@240 leaf@250",
		// A callee without its caller: the way back from Z to P or Q.
		"Z@120": "fitted by neighbour | 0.75 A@10 B@50 D@90 P@120 Z@120 | 0.25 A@10 B@50 D@90 Q@120 Z@120",
	})
	if p := c.Place(linkOf("Z@150 leaf@160")); p.Callers != (cct.Agreement{Levels: 1}) {
		t.Errorf("of different callers %+v agrees", p.Callers)
	}
	l := linkOf("G@60 leaf@70")
	p := c.Place(l)
	if len(p.Candidates) != 3 || p.Candidates[0].Share != 0.5 ||
		!strings.HasPrefix(lines(c.Stack(nil, l, p.Candidates[0])), "F@40") {
		t.Errorf("%s, want half of it through F", placed(c, l, p))
	}
}

// Neighbouring frames that an event may belong to are weighed by all walks through them.
func TestPlaceNeighboursByWeight(t *testing.T) {
	c := walked(map[string]uint64{
		"A@10 B@50 X@90": 1, "A@10 B@50 Y@90": 2, "A@10 B@50 Z@90": 3, "C@10 B@50 X@90": 4,
	})
	expectPlaces(t, c, map[string]string{"B@90": "fitted by neighbour | 0.6 A@10 B@90 | 0.4 C@10 B@90"})
}

// A chain of links has a bounded length, and is marked as incomplete.
func TestPlaceChainEnds(t *testing.T) {
	var c chain
	for i := range 200 {
		c.Call(linkOf(fmt.Sprintf("m%d@%d m%d@%d", i, 10+i, i+1, 11+i)), 1)
	}
	p := c.Place(linkOf("m200@210 leaf@220"))
	if p.Fit != cct.Unique || p.Callers.Levels != 1+64 || p.Callers.Whole {
		t.Errorf("%v, agreed: %+v", p.Fit, p.Callers)
	}
}

// What a link says about its caller is not ignored, except for its depth.
func TestPlaceWithoutDepths(t *testing.T) {
	c := walked(map[string]uint64{
		"A@10 B:1@50 D@90":     3,
		"A@10 F:1@50 B:1 D@90": 1,
		"A@10 F:2@50 D@90":     2,
		"A G H":                1,
	})
	expectPlaces(t, c, map[string]string{
		"B:1 D@90":    "fitted by site | 0.75 A@10 B:1 D@90 | 0.25 A@10 F:1@50 B:1 D@90",
		"B:1@58 D@90": "fitted by site | 0.75 A@10 B:1@58 D@90 | 0.25 A@10 F:1@50 B:1@58 D@90",
		"F:2@58 D@90": "fitted by site | 1 A@10 F:2@58 D@90",
		"F:1@58 D@90": "unplaced by nothing", // not from this site
		"B:1@50 D":    "unique by caller | 1 A@10 B:1@50 D",
		"G H":         "unplaced by nothing", // methods alone are no context
		"G":           "unplaced by nothing",
		"D@90 X@99": "ambiguous by caller | 0.5 A@10 B:1@50 D@90 X@99 | 0.3333 A@10 F:2@50 D@90 X@99 | 0.1667 A@10 " +
			"F:1@50 B:1 D@90 X@99",
		"B:1@50 D@91": "unique by caller | 1 A@10 B:1@50 D@91",
	})
}

// A walk that ended early is not considered whole, nor a context different from the one that it is
// a part of.
func TestPlaceBelowMarker(t *testing.T) {
	marked := func(walks ...string) *chain {
		c := &chain{Marker: func(m string) bool { return strings.HasPrefix(m, "[") }}
		for _, text := range walks {
			c.Walk(activations(text), 1)
		}
		return c
	}
	whole, cut, other := "A@10 B@50 D@90 E@100", "[cut] B@50 D@90 E@100", "[cut] F@50 D@90 E@100"
	for _, test := range []struct {
		name  string
		chain *chain
		want  string
		agree cct.Agreement
	}{
		{"cut alone", marked(cut), "unique by link | 1 [cut] B@50 D@90 E@100", cct.Agreement{Levels: 2}},
		{"part of a whole one", marked(cut, whole), "unique by link | 1 A@10 B@50 D@90 E@100",
			cct.Agreement{Levels: 3, Whole: true}},
		{"part of another", marked(other, whole),
			"ambiguous by link | 0.5 A@10 B@50 D@90 E@100 | 0.5 [cut] F@50 D@90 E@100", cct.Agreement{Levels: 1}},
		{"at once", marked("[cut] D@90 E@100", whole), "unique by link | 1 A@10 B@50 D@90 E@100",
			cct.Agreement{Levels: 3, Whole: true}},
		{"for two reasons", marked("[late] B@50 D@90 E@100", cut), "unique by link | 1 [late] B@50 D@90 E@100",
			cct.Agreement{Levels: 2}},
		{"the longer one", marked("[cut] D@90 E@100", cut, "[cut] E@100"), "unique by link | 1 [cut] B@50 D@90 E@100",
			cct.Agreement{Levels: 2}},
		{"of two whole ones", marked("[cut] D@90 E@100", whole, "A@10 F@50 D@90 E@100", "A@10 F@50 D@90 E@100"),
			"ambiguous by link | 0.6667 A@10 F@50 D@90 E@100 | 0.3333 A@10 B@50 D@90 E@100", cct.Agreement{Levels: 1}},
		{"another depth", marked(cut, "A@10 B@51 D@90 E@100"),
			"ambiguous by link | 0.5 A@10 B@51 D@90 E@100 | 0.5 [cut] B@50 D@90 E@100", cct.Agreement{Levels: 2}},
	} {
		l := linkOf("D@90 E@100")
		p := test.chain.Place(l)
		if got := placed(test.chain, l, p); got != test.want || p.Callers != test.agree {
			t.Errorf("%s: %s, %+v\n\twant %s, %+v", test.name, got, p.Callers, test.want, test.agree)
		}
	}
}

// Deep recursion is cut at a different level each time. All cut contexts agree with the longest
// one, unless there are too many to compare.
func TestPlaceManyBelowMarkers(t *testing.T) {
	c := chain{Marker: func(m string) bool { return m == "[cut]" }}
	deep := activations("[cut]")
	for i := range 200 {
		deep = append(activations(fmt.Sprintf("f@%d", 10+i)), deep...)
	}
	for i := range 100 {
		c.Walk(append(activations("leaf@999"), append(slices.Clone(deep[:100+i]), activations("[cut]")...)...), 1)
	}
	l := chainLink{Leaf: activations("leaf@999")[0], Caller: deep[0]}
	if p := c.Place(l); p.Fit != cct.Unique || p.Callers != (cct.Agreement{Levels: 199}) {
		t.Errorf("%v of %d, %+v, want the one of 199 frames", p.Fit, len(p.Candidates), p.Callers)
	}
	for i := range 70 {
		c.Walk(activations(fmt.Sprintf("A%d@10 leaf@998 leaf@999", i)), 1)
		c.Walk(activations(fmt.Sprintf("[cut] A%d@10 leaf@998 leaf@999", i)), 1)
	}
	if p := c.Place(linkOf("leaf@998 leaf@999")); p.Fit != cct.Ambiguous ||
		math.Abs(p.Candidates[0].Share-1./139) > 1e-9 {
		t.Errorf("%v, the first with %v of 140, of which one goes and the others are not compared", p.Fit,
			p.Candidates[0].Share)
	}
}

// More contexts than are listed: the last candidate stands for the others, and all count for the
// agreement.
func TestPlaceBounded(t *testing.T) {
	var c chain
	const n = 40
	for i := range n {
		c.Walk(activations(fmt.Sprintf("A%d@10 B@50 D@90 E@100", i)), uint64(i+1))
	}
	l := linkOf("D@90 E@100")
	p := c.Place(l)
	if p.Fit != cct.Ambiguous || len(p.Candidates) != cct.MaxCandidates || p.Callers != (cct.Agreement{Levels: 2}) {
		t.Fatalf("%v, %d candidates, agreed %+v", p.Fit, len(p.Candidates), p.Callers)
	}
	rest := 1.
	for i, to := range p.Candidates[:cct.MaxCandidates-1] {
		want := fmt.Sprintf("A%d@10 B@50 D@90 E@100", n-1-i)
		share := float64(n-i) / (n * (n + 1) / 2)
		rest -= share
		if got := lines(c.Stack(nil, l, to)); got != want || math.Abs(to.Share-share) > 1e-12 {
			t.Errorf("candidate %d: %v of %s, want %v of %s", i, to.Share, got, share, want)
		}
	}
	last := p.Candidates[cct.MaxCandidates-1]
	if got := lines(c.Stack(nil, l, last)); got != "D@90 E@100" || math.Abs(last.Share-rest) > 1e-12 {
		t.Errorf("the others: %v of %s, want %v", last.Share, got, rest)
	}

	for i := n; i < 5000; i++ {
		c.Walk(activations(fmt.Sprintf("A%d@10 B@50 D@90 E@100", i)), 1)
	}
	for text, agreed := range map[string]int{"D@90 E@100": 1, "D@90 X@100": 1, "E@100": 0, "E@90": 0, "D@91 E@100": 1} {
		if p := c.Place(linkOf(text)); p.Fit != cct.Unplaced || p.Basis != cct.ByTooMany || len(p.Candidates) > 0 ||
			p.Callers != (cct.Agreement{Levels: agreed}) {
			t.Errorf("%q of 5000 contexts: %v by %v, %+v", text, p.Fit, p.Basis, p.Callers)
		}
	}
}

func TestFitAndBasisStrings(t *testing.T) {
	if got := fmt.Sprint(cct.Unplaced, cct.Unique, cct.Ambiguous,
		cct.Fitted); got != "unplaced unique ambiguous fitted" {
		t.Error(got)
	}
	for b := cct.ByNothing; b <= cct.ByNeighbour; b++ {
		if b.String() == "" {
			t.Errorf("basis %d has no name", b)
		}
	}
}
