package vmruntime

import (
	"math"
	"slices"
	"testing"
)

func TestCardsRange(t *testing.T) {
	for _, test := range []struct {
		cards     Cards
		card      uint64
		low, high uint64
	}{
		{Cards{Base: 0x1000, Bytes: 512}, 0x1000, 0, 512},
		{Cards{Base: 0x7f00_0000_0000, Bytes: 512}, 0x7f00_0034_0001, 0x6800_0200, 0x6800_0400},
		// the table is below what its base would be
		{Cards{Base: math.MaxUint64 - 0xff, Bytes: 128}, 0x100, 0x200 * 128, 0x201 * 128},
	} {
		if low, high := test.cards.Range(test.card); low != test.low || high != test.high {
			t.Errorf("%+v, card %#x: %#x to %#x, want %#x to %#x", test.cards, test.card, low, high, test.low,
				test.high)
		}
	}
}

func TestCardsWithin(t *testing.T) {
	wide := Cards{Base: 0, Bytes: 512}
	narrow := Cards{Base: 0, Bytes: 512, Narrow: true, NarrowShift: 3}
	based := Cards{Base: 0, Bytes: 512, Narrow: true, NarrowBase: 0x8_0000_0000, NarrowShift: 3}
	for _, test := range []struct {
		name   string
		cards  Cards
		card   uint64
		values []uint64
		want   []uint64
	}{
		{"addresses", wide, 2, []uint64{1023, 1024, 1535, 1536, 1024}, []uint64{1024, 1535}},
		{"no narrow references", wide, 2, []uint64{1024 >> 3}, nil},
		{"narrow references in either half", narrow, 2, []uint64{1032 >> 3, 1040 >> 3 << 32, 1040 >> 3},
			[]uint64{1032, 1040}},
		{"an address and a reference", narrow, 2, []uint64{1024, 1032>>3 | 5<<32}, []uint64{1024, 1032}},
		{"from a base", based, 0x8_0000_0400 / 512, []uint64{1032 >> 3, 0x8_0000_0410},
			[]uint64{0x8_0000_0408, 0x8_0000_0410}},
		{"none", based, 2, nil, nil},
	} {
		if got := test.cards.Within(test.card, test.values); !slices.Equal(got, test.want) {
			t.Errorf("%s: %#x, want %#x", test.name, got, test.want)
		}
	}
}

func TestCardsStarts(t *testing.T) {
	const mb = 1 << 20
	for _, test := range []struct {
		region, addr uint64
		n            int
		want         []uint64
	}{
		{0, 5 * mb, 2, nil},
		{mb, 5*mb + 40, 3, []uint64{5 * mb, 4 * mb, 3 * mb}},
		{2 * mb, 5 * mb, 1, []uint64{4 * mb}},
		{2 * mb, 5 * mb, 9, []uint64{4 * mb, 2 * mb, 0}},
	} {
		if got := (Cards{Region: test.region}).Starts(test.addr, test.n); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %#x", test, got)
		}
	}
}
