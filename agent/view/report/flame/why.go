package flame

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// A Why says how one time differs from another, as far as that is more than chance.
type Why struct {
	Whole    []Finding `json:"whole"`    // findings about each kind, also where nothing is decided
	Findings []Finding `json:"findings"` // methods of the first kind, the one that explains most first
	Notes    []string  `json:"notes"`    // what a reader must know, one sentence each
	Windows  [2]int    `json:"windows"`  // number of windows of the baseline and of the selection
}

// A Finding is one difference. Method is empty for a whole kind, Caller if it is not that of one
// caller.
type Finding struct {
	Kind    string  `json:"kind"`
	Verdict string  `json:"verdict"` // more, less, same or undecided
	Method  string  `json:"method,omitempty"`
	Caller  string  `json:"caller,omitempty"`
	Unit    string  `json:"unit"` // unit of the numbers: that of the kind per second, or share
	Before  float64 `json:"before"`
	Now     float64 `json:"now"`
	// Within is half of the interval of the difference: of 99 % if there were one comparison, wider
	// as there are more.
	Within float64 `json:"within"`
	Text   string  `json:"text"` // the sentence, without the names
}

// LeastWindows is how many windows each time needs: see TestFewWindows of package audit.
const LeastWindows = 10

const (
	whyAlpha  = 0.01 // probability of false findings
	whyLeast  = 0.1  // differences of less than a tenth are none
	whyPoints = 0.01 // nor is what changes less than one percent of the whole
	// maxFindings is also the number of rounds in each of which the statistics are computed again.
	maxFindings    = 5
	maxWhyKeys     = 200
	leastWhyShare  = 0.003 // share of both times together
	maxWhyWindows  = 60    // windows of each time; neighbours are added up
	maxWhyContexts = 1 << 18
	unitShare      = "share"
)

// An Explainer finds out how a selected time differs from a baseline.
//
//	e := flame.NewExplainer("shop", 0)
//	kind := e.Kind("cpu")
//	e.Add(kind, flame.Baseline, window) // each window of either time, in order
//	why, err := e.Explain(ctx)
//
// The statistics are those of package audit: first each kind per second, then which methods of the
// first kind have another share of it. A method that explains much takes its stacks with it: the
// next one is found among the others, so that neither its callers nor what merely became a smaller
// part of the whole is a finding.
type Explainer struct {
	service string
	pid     int64
	kinds   []*whyTree
}

// The times of an Explainer.
const (
	Baseline = iota
	Selected
)

// NewExplainer makes an Explainer of one service and one process of it. An empty service is all,
// and so is pid 0.
func NewExplainer(service string, pid int64) *Explainer {
	return &Explainer{service: service, pid: pid}
}

// Kind adds a kind of values, and returns its number. Methods of the first one are compared.
func (e *Explainer) Kind(name string) int {
	e.kinds = append(e.kinds, newWhyTree(name))
	return len(e.kinds) - 1
}

// Add adds a window of one of both times. It does not keep f.
func (e *Explainer) Add(kind, time int, f *Graph) {
	t := e.kinds[kind]
	t.sides[time] = append(t.sides[time], t.read(f, e.service, e.pid))
}

// Explain returns what differs. It fails if ctx ends.
func (e *Explainer) Explain(ctx context.Context) (*Why, error) {
	w := &Why{Whole: []Finding{}, Findings: []Finding{}, Notes: []string{}}
	if len(e.kinds) == 0 {
		return w, nil
	}
	first, others := e.kinds[0], e.kinds[1:]
	w.Windows = [2]int{len(first.sides[Baseline]), len(first.sides[Selected])}
	if note := first.tooFew(); note != "" {
		w.Notes = append(w.Notes, note)
		return w, nil
	}
	for _, t := range e.kinds {
		t.coarsen()
		if f, ok := t.whole(whyAlpha / float64(len(e.kinds))); ok {
			w.Whole = append(w.Whole, f)
		}
	}
	if len(w.Whole) == 0 {
		w.Notes = append(w.Notes, "Undecided: there are too few samples for an interval")
		return w, nil
	}
	for len(w.Findings) < maxFindings {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("compare methods: %w", err)
		}
		f, found := first.next()
		if !found {
			break
		}
		texts := []string{f.Text}
		for _, t := range others {
			if other, ok := t.compareCost(f, whyAlpha/float64(maxFindings*len(others))); ok {
				texts = append(texts, other.Text)
			}
		}
		f.Text = strings.Join(texts, "; ")
		w.Findings = append(w.Findings, f)
	}
	if len(w.Findings) == 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("No method's share of %s differs by %g points or more, beyond chance",
			lowerFirst(first.title), 100*whyPoints))
	}
	return w, nil
}

// tooFew says that a time has too few windows for a comparison; empty if it has enough.
func (t *whyTree) tooFew() string {
	before, now := len(t.sides[Baseline]), len(t.sides[Selected])
	if min(before, now) >= LeastWindows {
		return ""
	}
	return fmt.Sprintf("Undecided: the baseline has %s, the selection %d; a comparison needs %d of each",
		stored.Plural(before, "window"), now, LeastWindows)
}

// Verdicts compares the methods of the first kind per second, whether they explain much or not, and
// returns what is known: a method is more or less only if its difference is more than chance. The
// note says why nothing is decided; it is empty otherwise.
func (e *Explainer) Verdicts() (v *Verdicts, note string) {
	t := e.kinds[0]
	if note := t.tooFew(); note != "" {
		return &Verdicts{Total: map[string]string{}, Own: map[string]string{}}, note
	}
	t.coarsen()
	return &Verdicts{Total: t.verdicts(), Own: t.innermost().verdicts()}, ""
}

// verdicts are those of methods with what they call, per second.
func (t *whyTree) verdicts() map[string]string {
	keys := slices.DeleteFunc(t.choose(make([]bool, len(t.edges))), func(k whyKey) bool { return k.caller != -1 })
	of := make(map[string]string, len(keys))
	for i, d := range compareWhy(t.count(keys, nil, inSeconds), len(keys), whyAlpha).Keys {
		of[t.names[keys[i].callee]] = d.Verdict.String()
	}
	return of
}

// lowerFirst writes a title within a sentence, unless it begins with an abbreviation.
func lowerFirst(title string) string {
	if len(title) > 1 && title[1] >= 'A' && title[1] <= 'Z' {
		return title
	}
	return strings.ToLower(title[:min(len(title), 1)]) + title[min(len(title), 1):]
}

func inSeconds(w *whyWindow, _, _ audit.Cost) float64 { return w.duration.Seconds() }
func ofLeft(_ *whyWindow, left, _ audit.Cost) float64 { return left.Amount }
func ofAll(_ *whyWindow, _, all audit.Cost) float64   { return all.Amount }

func compareWhy(sides [2]audit.Side[int32], keys int, alpha float64) *audit.Result {
	all := make([]int32, keys)
	for i := range all {
		all[i] = int32(i)
	}
	return audit.Compare(sides[0], sides[1], all, &audit.Options{Alpha: alpha, Least: whyLeast, Windows: LeastWindows})
}

func decided(v audit.Verdict) bool { return v == audit.More || v == audit.Less }

// whole compares a kind per second. It is false if there is no interval.
func (t *whyTree) whole(alpha float64) (Finding, bool) {
	d := compareWhy(t.count(nil, nil, inSeconds), 0, alpha).Whole
	if math.IsNaN(d.Within) {
		return Finding{}, false
	}
	f := t.finding(d)
	verb := map[audit.Verdict]string{audit.More: "rose", audit.Less: "fell",
		audit.Same: fmt.Sprintf("is the same within %g %%", 100*whyLeast), audit.Undecided: "undecided"}[d.Verdict]
	f.Text = fmt.Sprintf("%s %s: %s", t.title, verb, rates(t.kind, t.unit, d))
	return f, true
}

// compareCost compares what a method costs of another kind per second. It is false if that is not decided.
func (t *whyTree) compareCost(f Finding, alpha float64) (Finding, bool) {
	callee, known := t.places[f.Method]
	key := whyKey{-1, callee}
	if f.Caller != "" && known {
		key.caller, known = t.places[f.Caller]
	}
	if !known {
		return Finding{}, false
	}
	d := compareWhy(t.count([]whyKey{key}, nil, inSeconds), 1, alpha).Keys[0]
	if !decided(d.Verdict) {
		return Finding{}, false
	}
	other := t.finding(d)
	other.Text = lowerFirst(t.title) + " " + rates(t.kind, t.unit, d)
	return other, true
}

func (t *whyTree) finding(d audit.Difference) Finding {
	return Finding{Kind: t.kind, Verdict: d.Verdict.String(), Unit: t.unit, Before: d.A.PerUnit, Now: d.B.PerUnit,
		Within: d.Within}
}

// next finds the method whose share explains most of what is left of the difference, and removes
// its stacks.
func (t *whyTree) next() (Finding, bool) {
	gone := t.without()
	keys := t.choose(gone)
	if len(keys) == 0 {
		return Finding{}, false
	}
	const alpha = whyAlpha / maxFindings
	left := compareWhy(t.count(keys, gone, ofLeft), len(keys), alpha)
	all := compareWhy(t.count(keys, gone, ofAll), len(keys), alpha)
	type candidate struct {
		at    int
		score float64
	}
	var list []candidate
	for i := range keys {
		d, shown := left.Keys[i], all.Keys[i]
		if decided(d.Verdict) && shown.Verdict == d.Verdict && math.Abs(shown.Change) >= whyPoints {
			list = append(list, candidate{i, divergence(d.A.PerUnit, d.B.PerUnit)})
		}
	}
	if len(list) == 0 {
		return Finding{}, false
	}
	// A method with one caller is as good as the call, which says more.
	specific := func(c candidate) float64 {
		if keys[c.at].caller != -1 {
			return 1.05 * c.score
		}
		return c.score
	}
	best := list[0]
	for _, c := range list[1:] {
		// Callers follow what they call: choose the outermost of those that are all new.
		if specific(c) > 0.999*specific(best) {
			best = c
		}
	}
	key, d := keys[best.at], all.Keys[best.at]
	t.removed[key] = true
	f := Finding{Kind: t.kind, Verdict: d.Verdict.String(), Unit: unitShare, Before: d.A.PerUnit, Now: d.B.PerUnit,
		Within: d.Within, Method: t.names[key.callee]}
	if key.caller >= 0 {
		f.Caller = t.names[key.caller]
	}
	f.Text = fmt.Sprintf("%s → %s %% ± %s", layout.Plain(100*f.Before), layout.Plain(100*f.Now),
		layout.Plain(100*f.Within))
	return f, true
}

// divergence is how much a part that changes its share tells the two times apart: its term of the
// divergence of Jeffreys (1946). Where something new takes a share, it is larger for that than for
// what it took the share from, and than for its callers.
func divergence(a, b float64) float64 {
	const least = 0.001 // a share that is not distinguished from none
	return math.Abs(b-a) * math.Abs(math.Log((b+least)/(a+least)))
}

// rates writes values per second, with the interval of the difference.
func rates(kind, unit string, d audit.Difference) string {
	scale, name := 1.0, "/s"
	steps := func(names []string, sizes []float64) {
		for i, size := range sizes {
			if scale, name = size, names[i]; max(d.A.PerUnit, d.B.PerUnit) >= size {
				break
			}
		}
	}
	switch {
	case kind == KindCPU && unit == stored.UnitTime:
		scale, name = 1e9, " CPUs"
	case unit == stored.UnitTime:
		steps([]string{" s/s", " ms/s", " µs/s"}, []float64{1e9, 1e6, 1e3})
	case unit == stored.UnitBytes:
		steps([]string{" GB/s", " MB/s", " kB/s", " B/s"}, []float64{1e9, 1e6, 1e3, 1})
	}
	return fmt.Sprintf("%s → %s%s ± %s", layout.Cell(d.A.PerUnit/scale), layout.Cell(d.B.PerUnit/scale), name,
		layout.Cell(d.Within/scale))
}
