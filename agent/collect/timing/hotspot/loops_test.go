package hotspot

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// nestedFlow is for (int i = 0; i < n; i++) { if (…) j += 2; for (…; j--) { } } with a call in
// front of the inner loop.
func nestedFlow() *vmruntime.MethodFlow {
	return &vmruntime.MethodFlow{
		Counted: true,
		Blocks: []vmruntime.FlowBlock{
			{Begin: 0, End: 2, Last: 1, Count: 10, Successors: []int{1}},
			{Begin: 2, End: 6, Last: 4, Count: 110, Successors: []int{7, 2}}, // outer head
			{Begin: 6, End: 10, Last: 8, Count: 100, Successors: []int{4, 3}},
			{Begin: 10, End: 14, Last: 12, Count: 30, Successors: []int{4}},
			{Begin: 14, End: 18, Last: 16, Count: 600, Successors: []int{6, 5}}, // inner head
			{Begin: 18, End: 24, Last: 22, Count: 500, Successors: []int{4}},
			{Begin: 24, End: 30, Last: 28, Count: 100, Successors: []int{1}},
			{Begin: 30, End: 32, Last: 31, Count: 10},
		},
		Writes: []vmruntime.LocalWrite{
			{BCI: 0, Local: 1}, {BCI: 10, Local: 3, Step: 2}, {BCI: 18, Local: 2, Step: -1},
			{BCI: 20, Local: 5, Step: 1}, {BCI: 21, Local: 5},
			{BCI: 24, Local: 1, Step: 1},
		},
	}
}

func TestShapes(t *testing.T) {
	s := shapesOf(nestedFlow())
	got := ""
	for i := range s.loops {
		l := &s.loops[i]
		got += fmt.Sprintf("%d in %d: %v, %.0f a call; ", l.head, l.Parent, s.counters(i), s.perCall(i))
	}
	// Of the inner loop's, 5 is also stored. What is added now and then, as 3, counts nothing.
	if want := "2 in -1: [{1 1}], 10 a call; 14 in 0: [{2 -1}], 50 a call; "; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	got = ""
	for block := range s.flow.Blocks {
		got += fmt.Sprintf("%d:%d%v ", s.in[block], s.closes(block), s.every(block))
	}
	if want := "-1:-1false 0:-1true 0:-1true 0:-1false 1:-1true 1:1true 0:0true -1:-1false "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s.block(19) != 5 || s.block(32) != -1 || s.block(-1) != -1 {
		t.Errorf("blocks %d, %d, %d", s.block(19), s.block(32), s.block(-1))
	}
}

// rounds are a window of rounds in which the counter grew by these numbers.
func rounds(moved ...int64) *result {
	r := &result{Started: len(moved)}
	for _, m := range moved {
		r.Timed = append(r.Timed, bpf.Timed{Ns: 20_000, Ra: uint64(m)})
	}
	return r
}

// Rounds have the usual number of iterations. Those across the end of the loop, and what is left at
// its end, do not count.
func TestRoundsTake(t *testing.T) {
	p := loopPlace{inside: []uint64{1}, counter: &bpf.TimingOperand{}, step: -2, moves: map[int64]float64{}}
	if list, runs := p.take(rounds(-2000, -2000, -2000)); len(list) != 0 || runs != 0 {
		t.Errorf("%d rounds of %d iterations, and only three were seen", len(list), runs)
	}
	var moved []int64
	for range 4 {
		moved = append(moved, -2000, -2000, 7000, -2000, -466, -2000, 0, -2001)
	}
	if list, runs := p.take(rounds(moved...)); len(list) != 16 || runs != 1000 {
		t.Errorf("%d rounds of %d iterations, want 16 of 1000", len(list), runs)
	}
	// Where no number is usual, none is known.
	p.moves = map[int64]float64{}
	if list, runs := p.take(rounds(-2, -4, -6, -8, -10, -12, -14, -16, -18, -20, -22, -24, -26, -28, -30, -32,
		-34)); len(list) != 0 || runs != 0 {
		t.Errorf("%d rounds of %d iterations", len(list), runs)
	}
	p = loopPlace{inside: []uint64{1}}
	if list, runs := p.take(rounds(0, 0)); len(list) != 2 || runs != 1 {
		t.Errorf("without a counter: %d rounds of %d iterations", len(list), runs)
	}
}

func TestLoopDescribe(t *testing.T) {
	counter := &bpf.TimingOperand{}
	for _, test := range []struct {
		loop loopCode
		want string
	}{
		{loopCode{why: "no poll"}, "is not timed: no poll"},
		{loopCode{places: []*loopPlace{{}}}, ""},
		{loopCode{places: []*loopPlace{{counter: counter, rounds: 60, moves: map[int64]float64{16000: 99, 3: 1}}},
			perCall: 99998.4}, "16,000 iterations between two polls, by its counter; iterations per call: 99,998 as " +
			"of warm-up"},
		{loopCode{places: []*loopPlace{{what: "call", rounds: 60, hits: 12345, calls: 100}}, perCall: 98.25},
			"one iteration from one return of a call to the next; iterations per call: about 123 now, 98.2 as of " +
				"warm-up"},
	} {
		if got := test.loop.describe(); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

// A place that nobody passes makes way for the next one.
func TestLoopBest(t *testing.T) {
	a, b := &loopPlace{rounds: 20}, &loopPlace{rounds: 60}
	l := loopCode{places: []*loopPlace{a, b}}
	if l.best() != b {
		t.Error("the place with fewer rounds")
	}
	b.silent = silentWindows
	if l.best() != a || l.idle() {
		t.Error("a silent place")
	}
	a.silent = silentWindows
	if !l.idle() {
		t.Error("a loop without threads")
	}
}
