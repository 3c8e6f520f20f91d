package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// A language is how costs of one sample type are spoken of. The sentences are about B, where %s is
// how much in percent.
type language struct {
	scale float64 // divisor of the costs that are shown
	unit  string  // "ms of CPU"
	cpu   bool

	more, less, same, undecided string // sentences
	moreWord, lessWord          string // words in the table
}

// languageOf chooses words, and a scale in which the whole of A has at least one digit before the
// point.
func languageOf(r *Recording, result *audit.Result, per Per) language {
	t := r.stacks.Profile.SampleType[r.stacks.Column]
	thing := layout.Word(t.Type)
	l := language{scale: 1, unit: thing, moreWord: "more", lessWord: "less"}
	l.setWords("has", "more", "less", "as much", thing)
	top := max(result.Whole.A.PerUnit, result.Whole.B.PerUnit)
	scaled := func(names []string, steps []float64) {
		for i, step := range steps {
			if l.scale, l.unit = step, names[i]; top >= step {
				break
			}
		}
	}
	switch t.Unit {
	case stored.UnitTime:
		scaled([]string{"s", "ms", "µs", "ns"}, []float64{1e9, 1e6, 1e3, 1})
		l.unit += " of " + layout.Word(t.Type)
	case stored.UnitBytes:
		scaled([]string{"GB", "MB", "kB", "B"}, []float64{1e9, 1e6, 1e3, 1})
	}
	switch t.Type {
	case stored.TypeCPU, stored.TypeSamples:
		l.cpu = true
		l.setWords("uses", "more", "less", "as much", "CPU")
		if t.Type == stored.TypeCPU {
			l.unit = strings.Fields(l.unit)[0] + " of CPU"
		}
		if !per.perSecond() {
			l.more, l.less, l.same = "B is %s slower than A", "B is %s faster than A", "B is as fast as A"
			l.undecided = "Undecided whether B is faster or slower than A"
			l.moreWord, l.lessWord = "slower", "faster"
		}
	case stored.MainValue(profile.Allocations).Type:
		l.setWords("allocates", "more", "less", "as much", "memory")
	case stored.MainValue(profile.Locks).Type:
		l.more, l.less, l.same = "B waits %s longer for locks than A", "B waits %s less for locks than A",
			"B waits as long for locks as A"
		l.undecided = "Undecided whether B waits more or less for locks than A"
	case stored.TypeCalls:
		l.setWords("makes", "more", "fewer", "as many", "calls")
		l.lessWord = "fewer"
	}
	return l
}

// setWords makes sentences of what B does.
func (l *language) setWords(verb, more, less, same, thing string) {
	l.more = fmt.Sprintf("B %s %%s %s %s than A", verb, more, thing)
	l.less = fmt.Sprintf("B %s %%s %s %s than A", verb, less, thing)
	l.same = fmt.Sprintf("B %s %s %s as A", verb, same, thing)
	l.undecided = fmt.Sprintf("Undecided whether B %s %s or %s %s than A", verb, more, less, thing)
}

// claim is the beginning of the answer, for a difference of so many percent.
func (l language) claim(verdict audit.Verdict, percent float64, least float64) string {
	size := layout.Plain(math.Abs(percent)) + " %"
	if math.IsInf(percent, 1) {
		size = "infinitely"
	}
	switch verdict {
	case audit.More:
		return fmt.Sprintf(l.more, size)
	case audit.Less:
		return fmt.Sprintf(l.less, size)
	case audit.Same:
		return fmt.Sprintf("%s, within %s %%", l.same, layout.Plain(least))
	}
	return l.undecided
}

// estimates writes "1.83 ± 0.05 → 1.94 ± 0.04", with as many digits as the wider interval has.
func (l language) estimates(a, b audit.Estimate) string {
	within := max(a.Within, b.Within) / l.scale
	if math.IsNaN(within) {
		return layout.Plain(a.PerUnit/l.scale) + " → " + layout.Plain(b.PerUnit/l.scale)
	}
	places := 0
	for step := within; step > 0 && step < 9.5 && places < 4; step *= 10 {
		places++
	}
	one := func(e audit.Estimate) string {
		return fmt.Sprintf("%.*f ± %.*f", places, e.PerUnit/l.scale, places, e.Within/l.scale)
	}
	return one(a) + " → " + one(b)
}
