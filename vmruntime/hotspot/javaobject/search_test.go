package javaobject

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
)

// TestObjectSearch decides between places that look like objects.
func TestObjectSearch(t *testing.T) {
	place := func(start, end uint64) located {
		return located{Candidate: javaheap.Candidate{Start: start}, size: end - start}
	}
	mirror := func(start, end uint64) located {
		o := place(start, end)
		o.head.symbol = mirrorClass
		return o
	}
	for name, test := range map[string]struct {
		places  []located   // by ascending start
		free    [][2]uint64 // in buffers
		objects []uint64    // places behind
		addr    uint64
		want    uint64 // 0 if there is none
	}{
		"nothing":         {addr: 100},
		"one":             {places: []located{place(80, 120)}, addr: 100, want: 80},
		"row":             {places: []located{place(16, 40), place(40, 80), place(80, 120)}, addr: 100, want: 80},
		"ends before":     {places: []located{place(16, 40), place(40, 96)}, addr: 100},
		"behind the last": {places: []located{place(16, 40), place(40, 80), place(88, 120)}, addr: 100, want: 88},
		"no object":       {places: []located{place(16, 40)}, addr: 40},
		"looks so inside": {places: []located{place(16, 40), place(40, 200), place(96, 112)}, addr: 100, want: 40},
		"and ends before": {places: []located{place(16, 40), place(40, 200), place(80, 96)}, addr: 100, want: 40},
		"a large array":   {places: []located{place(40, 5000), place(80, 120)}, addr: 100, want: 80},
		"followed": {places: []located{place(40, 200), place(80, 120)}, objects: []uint64{200}, addr: 100,
			want: 40},
		"nearest is followed": {places: []located{place(40, 200), place(80, 120)}, objects: []uint64{120, 200},
			addr: 100, want: 80},
		"first in a buffer": {places: []located{place(16, 40), place(40, 70), place(70, 110), place(80, 120)},
			free: [][2]uint64{{40, 80}}, addr: 100, want: 80},
		"first in a buffer, dead one before": {places: []located{place(16, 40), place(40, 70), place(70, 90),
			place(80, 120)},
			free: [][2]uint64{{16, 80}}, addr: 100, want: 80},
		"first in a buffer, two dead ones before": {places: []located{place(40, 70), place(70, 110), place(80, 120)},
			free: [][2]uint64{{40, 80}}, addr: 100, want: 80},
		"class, behind others": {places: []located{place(16, 40), place(40, 72), mirror(80, 200), place(88, 128)},
			addr: 100, want: 80},
		"behind what fills a gap": {places: []located{place(8, 16), place(16, 24), place(24, 80), place(40, 56),
			place(56, 110), place(80, 120)},
			addr: 100, want: 80},
		"class": {places: []located{mirror(80, 200), place(88, 128)}, addr: 100, want: 80},
		"class, in a row": {places: []located{mirror(40, 80), place(48, 88), mirror(80, 200), place(88, 128)},
			addr: 100, want: 80},
	} {
		slices.Reverse(test.places)
		for chunk := 1; chunk <= len(test.places)+1; chunk++ {
			s := objectSearch{
				addr: test.addr,
				isFree: func(addr uint64) bool {
					return slices.ContainsFunc(test.free, func(f [2]uint64) bool { return addr >= f[0] && addr < f[1] })
				},
				isObject:       func(addr uint64) (bool, error) { return slices.Contains(test.objects, addr), nil },
				mirrorPointers: []uint64{8, 32},
			}
			for places := range slices.Chunk(test.places, chunk) {
				if !s.over {
					s.add(places)
				}
			}
			got, err := s.result()
			if err != nil || (got != nil) != (test.want != 0) || got != nil && got.Start != test.want {
				t.Errorf("%s, %d at a time: %+v, %v, want %d", name, chunk, got, err, test.want)
			}
		}
	}
}
