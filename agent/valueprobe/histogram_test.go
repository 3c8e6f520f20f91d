package valueprobe

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestBucket(t *testing.T) {
	for _, test := range []struct {
		n      uint64
		signed bool
		want   Bucket
		text   string
	}{
		{0, false, 0, "0"}, {0, true, 0, "0"}, {1, false, 1, "1"}, {2, true, 2, "2-3"}, {3, false, 2, "2-3"}, {16, false, 5, "16-31"},
		{31, true, 5, "16-31"}, {32, true, 6, "32-63"},
		{math.MaxUint64, false, 64, "9223372036854775808-18446744073709551615"},
		{math.MaxUint64, true, -1, "-1"},
		{^uint64(2), true, -2, "-3--2"}, // -3
		{^uint64(15), true, -5, "-31--16"},
		{math.MaxInt64, true, 63, "4611686018427387904-9223372036854775807"},
		{1 << 63, true, -64, "-9223372036854775808"},
	} {
		b := BucketOf(test.n, test.signed)
		if b != test.want || b.String() != test.text {
			t.Errorf("%#x, signed %v: bucket %d, %s; want %d, %s", test.n, test.signed, b, b, test.want, test.text)
		}
	}
}

// Sums and buckets are those of plain arithmetic, in any order and however they are merged.
func TestHistogramExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type added struct {
		Reading
		times uint64
	}
	var all []added
	total, count, failed := new(big.Int), uint64(0), uint64(0)
	buckets, texts := map[Bucket]uint64{}, map[string]uint64{}
	for i := range 5000 {
		a := added{Reading{Number: random.Uint64() >> random.UintN(64), Signed: i%2 == 0}, 1 + random.Uint64N(97)}
		switch {
		case i%10 == 9:
			a.Reading = Reading{Failed: true}
			failed += a.times
		case i%10 == 8:
			a.Reading = Reading{IsText: true, Text: fmt.Sprint(random.UintN(MaxTexts))}
			texts[a.Text] += a.times
		default:
			if i%4 == 0 {
				a.Number = -a.Number
			}
			n := new(big.Int).SetUint64(a.Number)
			if a.Signed {
				n.SetInt64(int64(a.Number))
			}
			total.Add(total, n.Mul(n, new(big.Int).SetUint64(a.times)))
			buckets[BucketOf(a.Number, a.Signed)] += a.times
		}
		count += a.times
		all = append(all, a)
	}
	want, _ := new(big.Float).SetInt(total).Float64()
	for range 5 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var h, part Histogram
		for i, a := range all {
			part.Add(a.Reading, a.times)
			if i%1000 == 999 {
				h.Merge(&part)
				part = Histogram{}
			}
		}
		if h.Count != count || h.Failed != failed || math.Abs(h.Sum()-want) > math.Abs(want)*1e-15 {
			t.Errorf("count %d, failed %d, sum %g; want %d, %d, %g", h.Count, h.Failed, h.Sum(), count, failed, want)
		}
		got := map[Bucket]uint64{}
		for _, b := range h.Buckets() {
			got[b.Bucket] = b.Count
		}
		if !reflect.DeepEqual(got, buckets) || !slices.IsSortedFunc(h.Buckets(), func(a, b BucketCount) int { return int(a.Bucket) - int(b.Bucket) }) {
			t.Errorf("buckets %v, want %v", h.Buckets(), buckets)
		}
		top, other := h.Texts()
		seen := map[string]uint64{}
		for _, c := range top {
			seen[c.Text] = c.Count
		}
		if !reflect.DeepEqual(seen, texts) || other != 0 {
			t.Errorf("texts %v and %d others, want %v", top, other, texts)
		}
	}
}

func TestHistogramSum(t *testing.T) {
	var h Histogram
	h.Add(Reading{Number: math.MaxUint64}, math.MaxUint32)
	h.Add(Reading{Number: 1 << 63, Signed: true}, math.MaxUint32) // -2^63
	h.Add(Reading{Number: 1 << 63, Signed: true}, math.MaxUint32)
	if got := h.Sum(); got != -math.MaxUint32 {
		t.Errorf("sum %g, want %d", got, -math.MaxUint32)
	}
}

// More texts than there is room for: bounded, nothing lost from the total, and the frequent ones are within the bound.
func TestHistogramManyTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, order := range map[string]func([]string){
		"shuffled":        func(a []string) { random.Shuffle(len(a), func(i, j int) { a[i], a[j] = a[j], a[i] }) },
		"rare ones first": func(a []string) { slices.Reverse(a) },
		"frequent first":  func([]string) {},
	} {
		t.Run(name, func(t *testing.T) {
			var all []string
			truth := map[string]uint64{}
			for i, n := range []int{9000, 4000, 2000} {
				text := fmt.Sprintf("frequent %d", i)
				truth[text] = uint64(n)
				all = append(all, slices.Repeat([]string{text}, n)...)
			}
			for i := range 20000 {
				text := fmt.Sprint(i)
				truth[text] = 1
				all = append(all, text)
			}
			order(all)
			var halves [2]Histogram
			for i, text := range all {
				halves[i%2].Add(Reading{IsText: true, Text: text}, 1)
			}
			h := &halves[0]
			h.Merge(&halves[1])
			top, other := h.Texts()
			if len(top) > MaxTexts {
				t.Errorf("%d texts", len(top))
			}
			kept := other
			for _, c := range top {
				kept += c.Count
				if c.Count > truth[c.Text] || truth[c.Text]-c.Count > other/(MaxTexts+1) {
					t.Errorf("%s: %d of %d with %d others", c.Text, c.Count, truth[c.Text], other)
				}
			}
			if kept != uint64(len(all)) || h.Count != kept {
				t.Errorf("%d and %d, want %d", kept, h.Count, len(all))
			}
			for i := range 3 {
				if len(top) < 3 || top[i].Text != fmt.Sprintf("frequent %d", i) {
					t.Errorf("the first of %v are not the frequent ones", top[:min(3, len(top))])
				}
			}
		})
	}
}

// A text without room takes from all that are kept, but no more than it has itself.
func TestHistogramRoom(t *testing.T) {
	var h Histogram
	for i := range MaxTexts {
		h.Add(Reading{IsText: true, Text: fmt.Sprint(i)}, 5)
	}
	for _, test := range []struct {
		n, first, texts, other uint64
	}{{2, 3, MaxTexts, 2 * (MaxTexts + 1)}, {3, 0, 0, 5 * (MaxTexts + 1)}, {4, 4, 1, 5 * (MaxTexts + 1)}} {
		h.Add(Reading{IsText: true, Text: "another"}, test.n)
		top, other := h.Texts()
		if uint64(len(top)) != test.texts || other != test.other || len(top) > 0 && top[0].Count != test.first {
			t.Errorf("%d more: %d texts, %d others, want %+v", test.n, len(top), other, test)
		}
	}
}

// FuzzHistogram: whatever is added, it is bounded and adds up.
func FuzzHistogram(f *testing.F) {
	f.Add(uint64(1), uint64(2), true, 100)
	f.Add(uint64(1<<63), uint64(1<<33), false, 1000)
	f.Fuzz(func(t *testing.T, seed, times uint64, signed bool, n int) {
		random := rand.New(rand.NewPCG(seed, 0))
		times = max(times%(1<<40), 1)
		var h Histogram
		for range min(n, 2000) {
			h.Add(Reading{Number: random.Uint64() >> random.UintN(64), Signed: signed}, times)
			h.Add(Reading{IsText: true, Text: fmt.Sprint(random.UintN(300))}, 1+random.Uint64N(times))
		}
		var sum uint64
		for _, b := range h.Buckets() {
			sum += b.Count
		}
		top, other := h.Texts()
		for _, c := range top {
			sum += c.Count
		}
		if sum+other+h.Failed != h.Count || len(top) > MaxTexts || len(h.Buckets()) > 129 {
			t.Errorf("%d and %d others of %d, %d texts, %d buckets", sum, other, h.Count, len(top), len(h.Buckets()))
		}
	})
}
