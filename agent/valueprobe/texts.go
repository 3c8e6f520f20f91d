package valueprobe

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// MaxTexts is how many different texts a Histogram keeps. With 480 bytes each they take 30 kB at most.
const MaxTexts = 64

// A TextCount is how often a text was seen.
type TextCount struct {
	Text  string
	Count uint64
}

// texts counts the frequent ones of any number of texts in bounded memory: Misra and Gries, Finding repeated elements,
// 1982. A text for which there is no room takes as much away from itself and from each that is kept, and what was taken
// goes to other: so the counts and other always add up to all that was added.
type texts struct {
	counts map[string]uint64 // none is 0; MaxTexts at most
	other  uint64
}

func (t *texts) add(text string, n uint64) {
	for n > 0 {
		if _, known := t.counts[text]; known || len(t.counts) < MaxTexts {
			if t.counts == nil {
				t.counts = map[string]uint64{}
			}
			t.counts[text] += n
			return
		}
		n -= t.take(n)
	}
}

// take makes room by taking from each text, and from one for which there is no room: as much as the rarest has, but no
// more than limit. It returns how much.
func (t *texts) take(limit uint64) uint64 {
	least := uint64(math.MaxUint64)
	for _, n := range t.counts {
		least = min(least, n)
	}
	least = min(least, limit)
	t.other += least * uint64(len(t.counts)+1)
	for text, n := range t.counts {
		if n == least {
			delete(t.counts, text)
		} else {
			t.counts[text] = n - least
		}
	}
	return least
}

func (t *texts) merge(o *texts) {
	t.other += o.other
	for _, c := range o.top() { // in an order that does not change
		t.add(c.Text, c.Count)
	}
}

func (t *texts) top() []TextCount {
	all := make([]TextCount, 0, len(t.counts))
	for text, n := range maps.All(t.counts) {
		all = append(all, TextCount{text, n})
	}
	slices.SortFunc(all, func(a, b TextCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text))
	})
	return all
}
