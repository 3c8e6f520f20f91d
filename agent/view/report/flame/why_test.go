package flame

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit/audittest"
)

// A whyLoad makes windows of 10 s of a service: samples a window by stack, outermost first, on
// average.
type whyLoad map[string]float64

func (l whyLoad) windows(random *rand.Rand, n int, kind, unit string, perSample, busy float64) (list []*Graph) {
	var stacks []string
	for s := range l {
		stacks = append(stacks, s)
	}
	slices.Sort(stacks)
	for i := range n {
		f := newFlame(kind, map[string]string{"cpu": "CPU time", "alloc": "Allocated bytes"}[kind], unit)
		f.Start, f.Duration = time.Unix(int64(10*i), 0), 10*time.Second
		level := busy * math.Exp(0.1*random.NormFloat64())
		for _, stack := range stacks {
			count := float64(audittest.Poisson(random, level*l[stack]))
			if count == 0 {
				continue
			}
			process := f.frame(flameFrame{name: "shop (pid 7)", kind: kindProcess})
			f.processes[process] = Process{PID: 7, Comm: "java", Service: "shop"}
			at := f.child(f.child(0, process), f.frame(flameFrame{name: "http-*", kind: kindThread}))
			for name := range strings.FieldsSeq(stack) {
				name = strings.ReplaceAll(name, "RARE", profile.RareStacks)
				at = f.child(at, f.frame(flameFrame{name: name, kind: kindManaged}))
			}
			f.nodes[at].value[0] += perSample * count
			f.nodes[at].count[0] += count
		}
		list = append(list, f)
	}
	return list
}

// with returns a load with other stacks, too.
func (l whyLoad) with(stacks whyLoad) whyLoad {
	out := whyLoad{}
	for _, from := range []whyLoad{l, stacks} {
		for k, v := range from {
			out[k] += v
		}
	}
	return out
}

func quietLoad() whyLoad {
	l := whyLoad{"run handle search index": 300, "run handle search": 50, "run handle cart total": 400,
		"run gc mark": 100}
	for i := range 60 {
		l[fmt.Sprintf("run handle page m%d", i)] = 1 + float64(i%7)
	}
	return l
}

const tenMillis = 1e7 // ns of a sample

// A whyKind is one kind in both times.
type whyKind struct {
	name    string
	windows [2][]*Graph
}

func explainer(service string, kinds ...whyKind) *Explainer {
	e := NewExplainer(service, 0)
	for _, k := range kinds {
		at := e.Kind(k.name)
		for side, list := range k.windows {
			for _, f := range list {
				e.Add(at, side, f)
			}
		}
	}
	return e
}

func explain(t *testing.T, kinds ...whyKind) *Why {
	t.Helper()
	w, err := explainer("shop", kinds...).Explain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A method that is new under one caller is the finding, with a share that has the truth within its
// interval, and what it allocates. What it took the share from, its callers and its callees are
// none.
func TestExplain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	before := quietLoad()
	now := before.with(whyLoad{"run handle search compile parse": 60, "run handle search compile": 60})
	cpu := whyKind{KindCPU, [2][]*Graph{before.windows(random, 20, KindCPU, stored.UnitTime, tenMillis, 1),
		now.windows(random, 10, KindCPU, stored.UnitTime, tenMillis, 1)}}
	allocations := whyLoad{"run handle search byte[]": 300}
	alloc := whyKind{"alloc", [2][]*Graph{allocations.windows(random, 20, "alloc", stored.UnitBytes, 1e5, 1),
		allocations.with(whyLoad{"run handle search compile int[]": 200}).windows(random, 10, "alloc", stored.UnitBytes,
			1e5, 1)}}
	w := explain(t, cpu, alloc)
	if len(w.Findings) != 1 || len(w.Whole) != 2 || w.Windows != [2]int{20, 10} {
		t.Fatalf("%+v", w)
	}
	total := 0.0
	for _, v := range now {
		total += v
	}
	f := w.Findings[0]
	if f.Method != "compile" || f.Caller != "search" || f.Verdict != "more" || f.Before != 0 ||
		math.Abs(f.Now-120/total) > f.Within || f.Within > 0.05 {
		t.Errorf("%+v, want %.3f", f, 120/total)
	}
	if !strings.Contains(f.Text, " % ± ") || !strings.Contains(f.Text, "; allocated bytes 0 → ") ||
		!strings.Contains(f.Text, " MB/s ± ") {
		t.Errorf("%q", f.Text)
	}
	if w.Whole[1].Verdict != "more" || !strings.Contains(w.Whole[1].Text, "Allocated bytes rose: ") {
		t.Errorf("%+v", w.Whole[1])
	}
	// The same the other way round.
	cpu.windows[0], cpu.windows[1] = cpu.windows[1], cpu.windows[0]
	if w := explain(t, cpu); len(w.Findings) != 1 || w.Findings[0].Method != "compile" ||
		w.Findings[0].Verdict != "less" || w.Findings[0].Now != 0 {
		t.Errorf("in the other direction: %+v", w.Findings)
	}
	// Of another service there is nothing.
	if w, err := explainer("other", cpu).Explain(t.Context()); err != nil || len(w.Whole)+len(w.Findings) != 0 ||
		len(w.Notes) != 1 {
		t.Errorf("another service: %+v, %v", w, err)
	}
}

// What stands for rare stacks is neither a finding nor a caller; the methods below it are findings.
func TestExplainRare(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	before := quietLoad()
	now := before.with(whyLoad{"run handle RARE parse": 120})
	w := explain(t, whyKind{KindCPU, [2][]*Graph{before.windows(random, 15, KindCPU, stored.UnitTime, tenMillis, 1),
		now.windows(random, 15, KindCPU, stored.UnitTime, tenMillis, 1)}})
	if len(w.Findings) != 1 || w.Findings[0].Method != "parse" || w.Findings[0].Caller != "" {
		t.Errorf("%+v", w.Findings)
	}
}

// Twice the load is no finding of any method.
func TestExplainLoad(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	l := quietLoad()
	w := explain(t, whyKind{KindCPU, [2][]*Graph{l.windows(random, 20, KindCPU, stored.UnitTime, tenMillis, 1),
		l.windows(random, 10, KindCPU, stored.UnitTime, tenMillis, 2)}})
	if len(w.Findings) != 0 || w.Whole[0].Verdict != "more" || len(w.Notes) != 1 {
		t.Errorf("%+v", w)
	}
}

// Two times of one program hardly ever have a finding, and none without an interval.
func TestExplainNothing(t *testing.T) {
	const experiments = 150
	random := rand.New(rand.NewPCG(3, 1))
	l := quietLoad()
	found, whole := 0, 0
	for range experiments {
		w := explain(t, whyKind{KindCPU, [2][]*Graph{l.windows(random, 18, KindCPU, stored.UnitTime, tenMillis, 1),
			l.windows(random, 12, KindCPU, stored.UnitTime, tenMillis, 1)}})
		found += len(w.Findings)
		if v := w.Whole[0].Verdict; v == "more" || v == "less" {
			whole++
		}
	}
	if found+whole > 2 {
		t.Errorf("%d findings and %d verdicts on the whole in %d experiments", found, whole, experiments)
	}
	few := explain(t, whyKind{KindCPU, [2][]*Graph{l.windows(random, 30, KindCPU, stored.UnitTime, tenMillis, 1),
		l.windows(random, 9, KindCPU, stored.UnitTime, tenMillis, 5)}})
	if len(few.Findings)+len(few.Whole) != 0 || len(few.Notes) != 1 ||
		!strings.Contains(few.Notes[0], "Undecided: the baseline has 30 windows, the selection 9") {
		t.Errorf("%+v", few)
	}
}

// Two changes are two findings; and who does not wait gets no answer.
func TestExplainSeveral(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 1))
	before := quietLoad()
	now := before.with(whyLoad{"run handle cart total": -200, "run audit hash": 100})
	k := whyKind{KindCPU, [2][]*Graph{before.windows(random, 15, KindCPU, stored.UnitTime, tenMillis, 1),
		now.windows(random, 15, KindCPU, stored.UnitTime, tenMillis, 1)}}
	w := explain(t, k)
	var names []string
	for _, f := range w.Findings {
		names = append(names, f.Method+" "+f.Verdict)
	}
	if len(names) != 2 || !slices.Contains(names, "audit more") || !slices.Contains(names, "cart less") &&
		!slices.Contains(names, "total less") {
		t.Errorf("%v", names)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := explainer("", k).Explain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// Verdicts of methods are those that are known: what costs more with a callee is more, though by
// itself it is the same; nothing differs by chance; and too few windows decide nothing.
func TestVerdicts(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 1))
	before := quietLoad()
	now := before.with(whyLoad{"run handle search compile": 200})
	windows := func(l whyLoad, n int) []*Graph { return l.windows(random, n, KindCPU, stored.UnitTime, tenMillis, 1) }
	v, note := explainer("shop", whyKind{KindCPU, [2][]*Graph{windows(before, 15), windows(now, 15)}}).Verdicts()
	if note != "" || v.Own["compile"] != "more" || v.Total["compile"] != "more" || v.Total["search"] != "more" ||
		v.Own["search"] == "more" || v.Own["total"] == "" || v.Own["run"] != "" {
		t.Errorf("%+v, %q", v, note)
	}
	wrong, all := 0, 0
	for range 20 {
		v, _ := explainer("shop", whyKind{KindCPU, [2][]*Graph{windows(before, 15), windows(before, 12)}}).Verdicts()
		for _, of := range []map[string]string{v.Total, v.Own} {
			all += len(of)
			for _, verdict := range of {
				if verdict == "more" || verdict == "less" {
					wrong++
				}
			}
		}
	}
	if wrong > 2 || all < 20*20 {
		t.Errorf("%d of %d verdicts are wrong", wrong, all)
	}
	v, note = explainer("shop", whyKind{KindCPU, [2][]*Graph{windows(before, 15),
		windows(now, LeastWindows-1)}}).Verdicts()
	if len(v.Total)+len(v.Own) != 0 || !strings.Contains(note, "Undecided: ") {
		t.Errorf("of few windows: %+v, %q", v, note)
	}
}
